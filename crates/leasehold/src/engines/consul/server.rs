//! One Consul session as a server that orders nodes: keys below a name, in the order in which they were created.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::client::Http;
use super::client::kv::{Entry, Op};
use super::client::trouble::{Answer, Trouble};
use super::names::{self, EVICTED, GATES, LINE, PERMITS, QUEUE};
use super::session::{Lease, ttl_for};
use super::views::{Dir, Views, pause};
use crate::claim::{Claim, ClaimId, Mode};
use crate::clock::micros;
use crate::engine::{Clock, Inbox};
use crate::engines::ordered::data::Note;
use crate::engines::ordered::{
    Fail, Kind, Listed, Made, New, Node, Rooms, Server, Stored, Watch, conflict,
};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::line::Refusal;
use crate::name::Name;

/// For how long a call without a session asks again.
const PATIENCE: Duration = Duration::from_secs(10);

/// One Consul session.
#[derive(Debug)]
pub(super) struct ConsulServer {
    http: Arc<Http>,
    lease: Arc<Lease>,
    views: Arc<Views>,
    /// The server's shortest TTL, in milliseconds, as far as it is known.
    floor: Arc<AtomicU64>,
    /// The number of the last change of the session's gate.
    gate: AtomicU64,
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
        let lease = Lease::open(http, lease, floor, inbox).await?;
        let server = Self::with(http, lease, floor);
        let opened = server.move_gate().await;
        opened.map_err(|fail| fail.error::<Self>(Step::Open))?;
        Ok(Arc::new(server))
    }

    /// Without a session: to look, to evict, to ask.
    pub(super) fn desk(http: &Arc<Http>, floor: &Arc<AtomicU64>) -> Arc<Self> {
        let ttl = ttl_for(http.config.lease, Duration::ZERO);
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
            lease,
        }
    }

    /// Repeats a request until its outcome is certain, or the session is over. Only for requests that may be done twice.
    async fn again<T, F>(&self, mut ask: impl FnMut() -> F) -> Answer<T>
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

    async fn unless_over<T>(&self, answer: impl Future<Output = Answer<T>>) -> Answer<T> {
        tokio::select! {
            // Nothing is said of a session that is over: its watches have resolved, and would again.
            biased;
            () = self.lease.over.cancelled() => Err(Trouble::Dead("the session at Consul is over".to_owned())),
            answer = answer => answer,
        }
    }

    fn gate_key(&self) -> String {
        format!("{}/{GATES}{}", self.http.config.prefix, self.lease.id)
    }

    /// Changes the session's gate. Requests to make keys that were sent before this, and whose outcome is not known, have
    /// happened by now or never will: each of them names the change of the gate that it knew.
    async fn move_gate(&self) -> Result<(), Fail> {
        let key = self.gate_key();
        let moved = self.again(|| {
            // A value that is written again as it was is no change.
            let value = rand::random::<u64>().to_string();
            let (http, key, session) = (&self.http, &key, &self.lease.id);
            async move {
                http.txn(&[Op::Lock(key, 0, value.as_bytes(), session)])
                    .await
            }
        });
        let moved = moved.await?;
        let number = moved.first().map_or(0, |entry| entry.modified);
        let _ = self.gate.fetch_max(number, Ordering::AcqRel);
        Ok(())
    }

    /// Looks at the gate: it may have been moved, or be gone with the session. Not repeated.
    async fn look_at_gate(&self) -> Result<(), Fail> {
        let key = self.gate_key();
        match self.http.key(&key).await? {
            Some(gate) if gate.session == self.lease.id => {
                let _ = self.gate.fetch_max(gate.modified, Ordering::AcqRel);
                Ok(())
            }
            _ => {
                self.lease.over.cancel();
                Err(Fail::Over("Consul has ended the session".to_owned()))
            }
        }
    }

    /// The keys of a directory now.
    async fn fresh(&self, dir: &str) -> Result<Arc<Dir>, Fail> {
        let sent = self.views.sent();
        let (entries, index) = self.again(|| self.http.tree(dir, None)).await?;
        Ok(self.views.take(dir, entries, index, sent))
    }

    /// One key as it is known, or as it is now if it is not.
    async fn find(&self, room: &str, node: &str) -> Result<Option<Entry>, Fail> {
        let (dir, key) = (dir_of(room), format!("{room}{node}"));
        if let Some(entry) = self
            .views
            .known(dir)
            .and_then(|dir| dir.entries.get(&key).cloned())
        {
            return Ok(Some(entry));
        }
        Ok(self
            .again(|| self.http.key(&key))
            .await?
            .filter(|entry| !entry.session.is_empty()))
    }

    fn listed(&self, room: &str, keys: &Dir) -> Listed {
        let dir = dir_of(room);
        let mut nodes = nodes(room, keys);
        let others = [LINE, QUEUE, PERMITS].map(|other| format!("{dir}{other}"));
        let others = others.iter().filter(|other| *other != room);
        for other in others {
            if keys
                .entries
                .values()
                .any(|entry| names::node(other, entry).is_some())
            {
                nodes.push(Node {
                    name: other.clone(),
                    kind: Kind::Room,
                    order: i64::MAX,
                    claim: None,
                    weight: 1,
                });
            }
        }
        // Permits that are given back are waited for; a line behind a holder is looked at with less hurry.
        let urgent = room.ends_with(PERMITS);
        Listed {
            nodes,
            watch: self.views.watch_room(dir, room, keys, urgent),
        }
    }

    /// Writes a key that exists, with what `change` makes of its flags and value; none if it does not exist.
    async fn rewrite(
        &self,
        key: &str,
        flags: Option<u64>,
        data: &[u8],
    ) -> Result<Option<()>, Fail> {
        loop {
            let Some(old) = self.again(|| self.http.key(key)).await? else {
                return Ok(None);
            };
            if old.session.is_empty() {
                return Ok(None);
            }
            let (since, was) = unstamp(&old.value);
            let flags = flags.unwrap_or(old.flags);
            if flags == old.flags && was == data {
                return Ok(Some(()));
            }
            let value = stamp(since, data);
            // Bound to what was read: a request that comes late changes nothing, and makes no key.
            let op = [Op::Cas(key, flags, &value, old.modified)];
            match self.unless_over(self.http.txn(&op)).await {
                Ok(_) => return Ok(Some(())),
                Err(Trouble::Failed(..) | Trouble::Later(_) | Trouble::Unknown(_)) => {
                    pause(0).await
                }
                Err(trouble) => return Err(trouble.into()),
            }
        }
    }

    /// Deletes a key; false if it did not exist.
    async fn remove(&self, key: &str) -> Result<bool, Fail> {
        let mut tries = 0;
        let ops = [Op::Get(key), Op::Delete(key)];
        let deleted = self.again(|| {
            tries += 1;
            self.http.txn(&ops)
        });
        let deleted = match deleted.await {
            Ok(_) => true,
            // The request whose answer was lost may have deleted it.
            Err(Trouble::Failed(0, _)) => tries > 1,
            Err(trouble) => return Err(trouble.into()),
        };
        self.views.forget(key);
        Ok(deleted)
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
        if count > names::MOST {
            let what = format!(
                "{count} permits at once are too many: ask for at most {}",
                names::MOST
            );
            return Err(Fail::Refused(ErrorKind::Invalid, what));
        }
        let (dir, name, gate) = (dir_of(room), names::node_name(new.claim), self.gate_key());
        let (key, flags) = (format!("{room}{name}"), names::flags(new.kind, count));
        let value = stamp(now(), new.data);
        let mut failed = 0;
        let (number, keys) = loop {
            let (known, sent) = (self.gate.load(Ordering::Acquire), self.views.sent());
            let ops = [
                Op::CheckIndex(&gate, known),
                Op::Lock(&key, flags, &value, &self.lease.id),
                Op::GetTree(dir),
            ];
            match self.unless_over(self.http.txn(&ops)).await {
                // The gate and the key, and then all keys.
                Ok(entries) if entries.len() > 2 => {
                    let number = entries[1].created;
                    let keys = self.views.take(dir, entries[2..].to_vec(), number, sent);
                    break (number, keys);
                }
                Ok(_) | Err(Trouble::Unknown(_)) => {
                    self.move_gate().await?;
                    let keys = self.fresh(dir).await?;
                    let made = keys.entries.get(&key).map(|entry| entry.created);
                    if let Some(number) = made {
                        break (number, keys);
                    }
                }
                Err(Trouble::Failed(0, _)) => match self.look_at_gate().await {
                    Err(Fail::Over(why)) => return Err(Fail::Over(why)),
                    _ => {}
                },
                Err(Trouble::Later(_)) => {}
                Err(trouble) => {
                    if let Trouble::Dead(_) = trouble {
                        self.lease.over.cancel();
                    }
                    return Err(trouble.into());
                }
            }
            failed += 1;
            let paused = async {
                pause(failed).await;
                Ok(())
            };
            self.unless_over(paused).await?;
        };
        Ok(Made {
            names: vec![name],
            number: number_of(number)?,
            listed: self.listed(room, &keys),
        })
    }

    async fn clear(&self, room: &str, claim: ClaimId) -> Result<bool, Fail> {
        self.move_gate().await?;
        self.remove(&format!("{room}{}", names::node_name(claim)))
            .await
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
                node: Node {
                    name: apart.key.clone(),
                    kind: Kind::Room,
                    order: i64::MAX,
                    claim: None,
                    weight: 1,
                },
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

/// The directory of a room: all but its last part.
fn dir_of(room: &str) -> &str {
    let end = room.trim_end_matches('/').rfind('/');
    end.map_or("", |end| &room[..=end])
}

/// The claims of a room, in their order.
fn nodes(room: &str, keys: &Dir) -> Vec<Node> {
    let nodes = keys
        .entries
        .values()
        .filter_map(|entry| names::node(room, entry));
    let mut nodes: Vec<_> = nodes.collect();
    nodes.sort_by_key(|node| node.order);
    nodes
}

fn number_of(index: u64) -> Result<i64, Fail> {
    let what = format!("Consul counts {index} changes, which is more than fences have room for");
    i64::try_from(index).map_err(|_| Fail::Refused(ErrorKind::Unavailable, what))
}

fn now() -> u64 {
    Clock::boot().wall() / 1_000
}

/// What is stored: when the claim came, in milliseconds of its process's clock, and its data. Consul keeps no times.
fn stamp(since: u64, data: &[u8]) -> Vec<u8> {
    let mut value = format!("{since}\n").into_bytes();
    value.extend_from_slice(data);
    value
}

fn unstamp(value: &[u8]) -> (u64, &[u8]) {
    let stamped = || {
        let end = value.iter().position(|byte| *byte == b'\n')?;
        let since = std::str::from_utf8(&value[..end]).ok()?.parse().ok()?;
        Some((since, &value[end + 1..]))
    };
    stamped().unwrap_or((0, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        assert_eq!(unstamp(&stamp(7, b"a\nb")), (7, &b"a\nb"[..]));
        assert_eq!(unstamp(b"plain"), (0, &b"plain"[..]));
        assert_eq!(dir_of("p/0/name/line/"), "p/0/name/");
    }
}
