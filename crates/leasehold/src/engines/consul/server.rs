//! One Consul session as a server that orders nodes: keys below a name, in the order in which they were created.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::Http;
use super::client::kv::Op;
use super::client::trouble::{Answer, Trouble};
use super::follow::pause;
use super::names::{self, EVICTED, LINE, PERMITS, QUEUE};
use super::session::{Lease, ttl_for};
use super::stored::{dir_of, nodes, room_node, unstamp};
use super::views::{Dir, Views};
use crate::claim::{Claim, ClaimId, Mode};
use crate::clock::micros;
use crate::engine::{Clock, Inbox};
use crate::engines::ordered::data::Note;
use crate::engines::ordered::{
    Fail, FenceFloor, Kind, Listed, Made, New, Node, Rooms, Server, Stored, Watch, conflict,
};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::line::Refusal;
use crate::name::Name;
use crate::sync::Shared;

/// For how long a call without a session asks again.
const PATIENCE: Duration = Duration::from_secs(10);

/// One Consul session.
#[derive(Debug)]
pub(super) struct ConsulServer {
    pub(super) http: Arc<Http>,
    pub(super) lease: Arc<Lease>,
    pub(super) views: Arc<Views>,
    /// The server's shortest TTL, in milliseconds, as far as it is known.
    floor: Arc<AtomicU64>,
    /// The number of the last change of the session's gate.
    pub(super) gate: AtomicU64,
    /// Held while the gate is moved.
    pub(super) moving: tokio::sync::Mutex<()>,
    /// The requests to make keys that are under way, or have no answer, each with the change of the gate that it names.
    pub(super) under_way: Shared<HashMap<String, u64>>,
    /// The session is over when its last user is gone.
    _over: DropGuard,
}

impl ConsulServer {
    /// Opens a session for claims of this lease.
    pub(super) async fn open(
        http: &Arc<Http>,
        lease: Duration,
        floor: &Arc<AtomicU64>,
        inbox: Inbox,
    ) -> Result<Arc<Self>> {
        let lease = Lease::open(http, lease, floor, inbox, CancellationToken::new()).await?;
        let server = Self::with(http, lease, floor);
        let opened = server.move_gate(0).await;
        opened.map_err(|fail| fail.error::<Self>(Step::Open))?;
        Ok(Arc::new(server))
    }

    /// Without a session: to look, to evict, to ask.
    pub(super) fn desk(http: &Arc<Http>, floor: &Arc<AtomicU64>) -> Arc<Self> {
        let shortest = Duration::from_millis(floor.load(Ordering::Relaxed));
        let ttl = ttl_for(http.config.lease, shortest);
        let lease = Arc::new(Lease::none(http.clone(), ttl));
        Arc::new(Self::with(http, lease, floor))
    }

    fn with(http: &Arc<Http>, lease: Arc<Lease>, floor: &Arc<AtomicU64>) -> Self {
        Self {
            views: Views::new(http.clone(), lease.over.clone()),
            _over: lease.over.clone().drop_guard(),
            http: http.clone(),
            floor: floor.clone(),
            gate: AtomicU64::new(0),
            moving: tokio::sync::Mutex::default(),
            under_way: Shared::default(),
            lease,
        }
    }

    /// Repeats a request until its outcome is certain, or the session is over. Only for requests that may be done twice.
    pub(super) async fn again<T, F>(&self, mut ask: impl FnMut() -> F) -> Answer<T>
    where
        F: Future<Output = Answer<T>>,
    {
        let (clock, mut failed) = (Clock::boot(), 0);
        let until = clock.now() + micros(PATIENCE);
        loop {
            let trouble = match self.unless_over(ask()).await {
                Err(trouble @ (Trouble::Later(_) | Trouble::Unknown(_))) => trouble,
                answer => return answer,
            };
            if self.lease.id.is_empty() && clock.now() >= until {
                return Err(trouble);
            }
            tracing::debug!(%trouble, "asking again");
            failed += 1;
            let paused = async {
                pause(failed).await;
                Ok(())
            };
            self.unless_over(paused).await?;
        }
    }

    pub(super) async fn unless_over<T>(
        &self,
        answer: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        tokio::select! {
            // Nothing is said of a session that is over: its watches have resolved, and would again.
            biased;
            () = self.lease.over.cancelled() => Err(Trouble::Dead("the session at Consul is over".to_owned())),
            answer = answer => answer,
        }
    }

    fn trace_key(&self, name: &Name) -> String {
        format!(
            "{}/{EVICTED}{}",
            self.http.config.prefix,
            names::encode(name)
        )
    }
}

#[async_trait]
impl Server for ConsulServer {
    const KIND: &'static str = "consul";

    fn timeout(&self) -> Duration {
        self.lease.ttl * 2
    }

    fn fits(&self, lease: Duration) -> bool {
        let floor = Duration::from_millis(self.floor.load(Ordering::Relaxed));
        ttl_for(lease, floor) == self.lease.ttl
    }

    fn fence_floor(&self) -> FenceFloor {
        self.http.config.fence_floor
    }

    fn over(&self) -> &CancellationToken {
        &self.lease.over
    }

    async fn close(self: Arc<Self>) {
        self.lease.over.cancel();
        if !self.lease.id.is_empty() {
            self.lease.ended.cancelled().await;
        }
    }

    async fn ready(&self) -> Result<(), Fail> {
        let mut heard = self.http.heard();
        let waits = async {
            let _ = heard.wait_for(|heard| *heard).await;
            Ok(())
        };
        Ok(self.unless_over(waits).await?)
    }

    async fn prove(&self) -> Result<(), Fail> {
        self.lease.renew().await?;
        // A server that was the leader, and does not know better, renews as well: a majority stands behind this.
        self.look_at_gate().await?;
        // What happened to the claims before this call is told before its answer.
        Ok(self.views.refresh().await?)
    }

    fn rooms(&self, name: &Name, mode: Mode) -> Rooms {
        let dir = format!("{}/{}", self.http.config.prefix, names::directory(name));
        match mode {
            Mode::Permits { .. } => Rooms {
                line: format!("{dir}{QUEUE}"),
                permits: Some(format!("{dir}{PERMITS}")),
            },
            _ => Rooms {
                line: format!("{dir}{LINE}"),
                permits: None,
            },
        }
    }

    async fn make(&self, room: &str, new: &New<'_>, count: u32) -> Result<Made, Fail> {
        self.make_key(room, new, count).await
    }

    async fn clear(&self, room: &str, claim: ClaimId) -> Result<bool, Fail> {
        self.clear_key(room, claim).await
    }

    async fn list(&self, room: &str) -> Result<Listed, Fail> {
        let keys = self.fresh(dir_of(room)).await?;
        Ok(self.listed(room, &keys))
    }

    async fn read(&self, room: &str, node: &str) -> Result<Option<(Vec<u8>, Watch)>, Fail> {
        let key = format!("{room}{node}");
        loop {
            self.unless_over(async { Ok(()) }).await?;
            let Some(entry) = self.find(room, node).await? else {
                return Ok(None);
            };
            let data = unstamp(&entry.value).1.to_vec();
            match self.views.watch_key(dir_of(room), &key, entry.modified) {
                Some(watch) => return Ok(Some((data, watch))),
                // Watches are on directories that are known.
                None => {
                    let keys = self.fresh(dir_of(room)).await?;
                    let watched = keys.entries.get(&key).map(|entry| {
                        let watch = self.views.watch_key(dir_of(room), &key, entry.modified);
                        (unstamp(&entry.value).1.to_vec(), watch)
                    });
                    match watched {
                        Some((data, Some(watch))) => return Ok(Some((data, watch))),
                        Some((_, None)) => {}
                        None => return Ok(None),
                    }
                }
            }
        }
    }

    async fn write(&self, room: &str, node: &str, data: &[u8]) -> Result<bool, Fail> {
        let written = self.rewrite(&format!("{room}{node}"), None, data).await?;
        Ok(written.is_some())
    }

    async fn delete(&self, room: &str, node: &str) -> Result<bool, Fail> {
        self.remove(&format!("{room}{node}")).await
    }

    /// The same key, with other flags: it keeps its place.
    async fn downgrade(
        &self,
        room: &str,
        old: &str,
        new: &New<'_>,
    ) -> Result<Option<String>, Fail> {
        let (key, flags) = (format!("{room}{old}"), names::flags(new.kind, 1));
        let written = self.rewrite(&key, Some(flags), new.data).await?;
        Ok(written.map(|()| old.to_owned()))
    }

    async fn conflict(&self, claim: &Claim, line: &[Node]) -> Result<Option<Fail>, Fail> {
        if !line.iter().any(|node| node.kind == Kind::Room) {
            return Ok(None);
        }
        let dir = format!(
            "{}/{}",
            self.http.config.prefix,
            names::directory(&claim.name)
        );
        let keys = match self.views.known(&dir) {
            Some(keys) => keys,
            None => {
                let (entries, _) = self.again(|| self.http.tree(&dir, None)).await?;
                Arc::new(Dir::of(entries))
            }
        };
        let first = |room: &str| {
            let room = format!("{dir}{room}");
            let node = nodes(&room, &keys).into_iter().next()?;
            let key = format!("{room}{}", node.name);
            let note = keys
                .entries
                .get(&key)
                .and_then(|entry| Note::read(unstamp(&entry.value).1));
            Some((node.kind, note))
        };
        if let Mode::Permits { .. } = claim.mode {
            return Ok(first(LINE).map(|(kind, _)| conflict(kind)));
        }
        let other = first(PERMITS).or_else(|| first(QUEUE));
        Ok(other.map(|(_, note)| match note {
            Some(note) if note.capacity > 1 => Error::from(Refusal::Capacity(note.capacity)).into(),
            _ => conflict(Kind::Permit),
        }))
    }

    async fn look(&self, room: &str) -> Result<Vec<Stored>, Fail> {
        let dir = dir_of(room);
        let (entries, _) = self.again(|| self.http.tree(dir, None)).await?;
        let mut stored = Vec::new();
        for entry in &entries {
            if let Some(node) = names::node(room, entry) {
                let (since, data) = unstamp(&entry.value);
                stored.push(Stored {
                    number: node.order,
                    node,
                    data: data.to_vec(),
                    since: UNIX_EPOCH + Duration::from_millis(since),
                });
            }
        }
        stored.sort_by_key(|stored| stored.node.order);
        // Tells `inspect` to look at the rooms of a semaphore.
        let apart = entries.iter().find(|entry| {
            !entry.session.is_empty() && !entry.key.starts_with(&format!("{dir}{LINE}"))
        });
        if let (Some(apart), true) = (apart, room.ends_with(LINE)) {
            stored.push(Stored {
                node: room_node(&apart.key),
                data: Vec::new(),
                number: 0,
                since: SystemTime::UNIX_EPOCH,
            });
        }
        Ok(stored)
    }

    async fn names(&self) -> Result<Vec<Name>, Fail> {
        let prefix = format!("{}/", self.http.config.prefix);
        let keys = self.again(|| self.http.keys(&prefix)).await?;
        let names = keys.iter().filter_map(|key| {
            let dir = key.strip_prefix(&prefix)?;
            let name = names::decode(dir.split('/').nth(1)?)?;
            dir.starts_with(&names::directory(&name)).then_some(name)
        });
        let mut names: Vec<_> = names.collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn trace(&self, name: &Name) -> Result<Option<Vec<u8>>, Fail> {
        let key = self.trace_key(name);
        let read = self.again(|| self.http.key(&key)).await?;
        Ok(read.map(|entry| entry.value))
    }

    async fn leave_trace(&self, name: &Name, data: &[u8]) -> Result<(), Fail> {
        let key = self.trace_key(name);
        let ops = [Op::Set(&key, data)];
        let _ = self.again(|| self.http.txn(&ops)).await?;
        Ok(())
    }
}

impl From<Trouble> for Fail {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Dead(why) => Self::Over(why),
            Trouble::Denied(why) => Self::Refused(ErrorKind::Denied, why),
            trouble => Self::Refused(ErrorKind::Unavailable, trouble.to_string()),
        }
    }
}
