//! One ZooKeeper session as a server that orders nodes, in Curator's layout.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::client::{Answer, Client, Stat, Trouble};
use super::config::Config;
use super::names::{
    EVICTED, LEASES, LOCKS, decode, encode, is_at_the_end, nodes, parse, prefix, protection,
};
use crate::claim::{Claim, ClaimId, Mode};
use crate::engine::{Event, Inbox};
use crate::engines::ordered::data::Note;
use crate::engines::ordered::{
    Fail, FenceFloor, Kind, Listed, Made, New, Node, Rooms, Server, Stored, Watch, conflict,
};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::line::Refusal;
use crate::name::Name;

/// One ZooKeeper session.
#[derive(Debug)]
pub(super) struct ZkServer {
    client: Client,
    root: String,
    /// The timeout that was asked for.
    asked: Duration,
    fence_floor: FenceFloor,
}

/// A follower passes our words on to the leader up to half a tick late, and a session has at least two ticks: a timeout a
/// third longer than the lease ends after the lease on every clock.
fn timeout_for(lease: Duration) -> Duration {
    let timeout = lease * 4 / 3 + Duration::from_millis(1);
    Duration::from_millis(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
}

impl ZkServer {
    /// Opens a session for claims of this lease.
    pub(super) async fn open(
        config: &Config,
        lease: Duration,
        inbox: Option<Inbox>,
    ) -> Result<Arc<Self>> {
        let asked = timeout_for(lease);
        let on_down = move || {
            if let Some(inbox) = &inbox {
                inbox.deliver(Event::Unsure);
            }
        };
        let connected = Client::connect(config, asked, on_down).await;
        let client = connected.map_err(|trouble| Fail::from(trouble).error::<Self>(Step::Open))?;
        let given = client.timeout();
        let longest = given * 3 / 4;
        if longest < lease {
            let what = format!(
                "a lease of {lease:?} needs a session of {asked:?}, and this server allows {given:?} \
                 (maxSessionTimeout): ask for at most {longest:?}"
            );
            return Err(Error::new(ErrorKind::Invalid, Step::Open, what).on(Self::KIND));
        }
        Ok(Arc::new(Self {
            client,
            root: config.root().to_owned(),
            asked,
            fence_floor: config.fence_floor,
        }))
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, Fail> {
        Ok(there(self.client.again(|| self.client.list(path)).await)?.unwrap_or_default())
    }

    async fn mkdir(&self, path: &str) -> Answer<()> {
        // A node that the server has cleared away again is made again by the next create.
        match self.client.again(|| self.client.mkdir(path)).await {
            Err(Trouble::NoNode | Trouble::Exists) => Ok(()),
            answer => answer,
        }
    }

    /// The nodes of a room whose names have this start, with what is stored. After a `sync` the answer is final: a
    /// request that another server still has is refused there, because the session has moved.
    async fn find(&self, room: &str, start: &str) -> Result<Vec<(String, Vec<u8>, Stat)>, Fail> {
        let listed = there(self.client.again(|| self.client.list_synced(room)).await)?;
        let mut names = listed.unwrap_or_default();
        names.retain(|name| name.starts_with(start));
        let paths: Vec<_> = names.iter().map(|name| format!("{room}/{name}")).collect();
        let read = self.client.again(|| self.client.read_all(&paths)).await?;
        let found = names.into_iter().zip(read).filter_map(|(name, read)| {
            let (data, stat) = read?;
            Some((name, data, stat))
        });
        Ok(found.collect())
    }

    /// The nodes whose creation failed or got no answer: all of them, or none.
    async fn settle(
        &self,
        room: &str,
        start: &str,
        count: u32,
    ) -> Result<Vec<(String, Stat)>, Fail> {
        let found = self.find(room, start).await?;
        let found = found.into_iter().map(|(name, _, stat)| (name, stat));
        let mut found: Vec<_> = found.collect();
        // A node of an older session is about to be deleted by the server.
        let ours = found
            .iter()
            .all(|(_, stat)| stat.owner == self.client.session());
        if !ours || found.len() != count as usize {
            for (name, _) in std::mem::take(&mut found) {
                let _ = self.remove(room, &name).await?;
            }
        }
        found.sort_by_key(|(_, stat)| stat.czxid);
        Ok(found)
    }

    async fn remove(&self, room: &str, node: &str) -> Answer<bool> {
        let (path, mut tries) = (format!("{room}/{node}"), 0);
        let deleted = self.client.again(|| {
            tries += 1;
            self.client.delete(&path)
        });
        match deleted.await {
            Ok(()) => Ok(true),
            // The request whose answer was lost may have deleted it.
            Err(Trouble::NoNode) => Ok(tries > 1),
            Err(trouble) => Err(trouble),
        }
    }

    fn base(&self, name: &Name) -> String {
        format!("{}/{}", self.root, encode(name))
    }

    fn trace_path(&self, name: &Name) -> String {
        format!("{}/{EVICTED}/{}", self.root, encode(name))
    }

    /// Why a name in use as a semaphore is refused as another kind. A claim makes its permits before it leaves the line:
    /// read in this order, it is found in one of the two.
    async fn semaphore_at(&self, base: &str) -> Result<Option<Fail>, Fail> {
        for room in [LOCKS, LEASES] {
            let room = format!("{base}/{room}");
            // Any of them may be deleted before it is read; the others still use the name.
            for node in nodes(&self.children(&room).await?) {
                let path = format!("{room}/{}", node.name);
                let read = there(self.client.again(|| self.client.read(&path)).await)?;
                let Some((data, _)) = read else { continue };
                let note = Note::read(&data).filter(|note| note.capacity > 1);
                let refusal = note.map(|note| Error::from(Refusal::Capacity(note.capacity)).into());
                return Ok(Some(refusal.unwrap_or_else(|| conflict(Kind::Permit))));
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl Server for ZkServer {
    const KIND: &'static str = "zookeeper";

    fn timeout(&self) -> Duration {
        self.client.timeout()
    }

    fn fits(&self, lease: Duration) -> bool {
        let (needed, given) = (timeout_for(lease), self.timeout());
        // A server that gave more than was asked for gives no session a shorter timeout.
        needed == given || (given > self.asked && needed <= given)
    }

    fn fence_floor(&self) -> FenceFloor {
        self.fence_floor
    }

    fn over(&self) -> &CancellationToken {
        self.client.ended()
    }

    async fn close(self: Arc<Self>) {
        // The claims end now; the session is closed when the last user is done, an inspection perhaps.
        self.over().cancel();
        let closed = self.client.until_closed();
        drop(self);
        closed.await;
    }

    async fn ready(&self) -> Result<(), Fail> {
        Ok(self.client.connected().await?)
    }

    async fn prove(&self) -> Result<(), Fail> {
        let proved = self.client.prove().await;
        if let Err(Trouble::Dead(_)) = proved {
            self.over().cancel();
        }
        Ok(proved?)
    }

    fn rooms(&self, name: &Name, mode: Mode) -> Rooms {
        let base = self.base(name);
        match mode {
            Mode::Permits { .. } => Rooms {
                line: format!("{base}/{LOCKS}"),
                permits: Some(format!("{base}/{LEASES}")),
            },
            _ => Rooms {
                line: base,
                permits: None,
            },
        }
    }

    async fn make(&self, room: &str, new: &New<'_>, count: u32) -> Result<Made, Fail> {
        let start = prefix(new.claim, new.kind);
        loop {
            let (made, listed) = self.client.make(room, &start, new.data, count).await;
            let none = |one: &Answer<_>| !matches!(one, Ok(_) | Err(Trouble::Unknown(_)));
            let none = made.iter().all(none);
            let made: Answer<Vec<_>> = made.into_iter().collect();
            let (made, trouble) = match made {
                Ok(made) => (made, None),
                Err(Trouble::Dead(why)) => return Err(Fail::Over(why)),
                Err(trouble) if none => (Vec::new(), Some(trouble)),
                Err(trouble) => (self.settle(room, &start, count).await?, Some(trouble)),
            };
            match trouble {
                Some(Trouble::NoNode) if made.is_empty() => {
                    self.mkdir(room).await?;
                    continue;
                }
                Some(Trouble::Unknown(_)) if made.is_empty() => continue,
                // Past its end the sequence stands still, and the names are the same.
                Some(Trouble::Exists) if made.is_empty() => return Err(overflow(room)),
                Some(trouble) if made.is_empty() => return Err(trouble.into()),
                _ => {}
            }
            let names: Vec<_> = made.iter().map(|(name, _)| name.clone()).collect();
            if names.iter().any(|name| is_at_the_end(name)) {
                for name in names {
                    let _ = self.remove(room, &name).await?;
                }
                return Err(overflow(room));
            }
            let number = made.first().map_or(0, |(_, stat)| stat.czxid);
            let listed = match listed {
                Ok(listed) => listed_as(listed),
                Err(_) => self.list(room).await?,
            };
            return Ok(Made {
                names,
                number,
                listed,
            });
        }
    }

    async fn clear(&self, room: &str, claim: ClaimId) -> Result<bool, Fail> {
        let mut there = false;
        for (name, ..) in self.find(room, &protection(claim)).await? {
            there |= self.remove(room, &name).await?;
        }
        Ok(there)
    }

    async fn list(&self, room: &str) -> Result<Listed, Fail> {
        let listed = there(self.client.again(|| self.client.list_watched(room)).await)?;
        Ok(listed.map_or_else(Listed::default, listed_as))
    }

    async fn read(&self, room: &str, node: &str) -> Result<Option<(Vec<u8>, Watch)>, Fail> {
        let path = format!("{room}/{node}");
        there(self.client.again(|| self.client.read_watched(&path)).await)
    }

    async fn write(&self, room: &str, node: &str, data: &[u8]) -> Result<bool, Fail> {
        let path = format!("{room}/{node}");
        let written = there(self.client.again(|| self.client.write(&path, data)).await)?;
        Ok(written.is_some())
    }

    async fn delete(&self, room: &str, node: &str) -> Result<bool, Fail> {
        Ok(self.remove(room, node).await?)
    }

    /// Curator's form since 5.5: the reader's node has the writer's sequence.
    async fn downgrade(
        &self,
        room: &str,
        old: &str,
        new: &New<'_>,
    ) -> Result<Option<String>, Fail> {
        let sequence = old.get(old.len().saturating_sub(10)..).unwrap_or("");
        let (name, data) = (prefix(new.claim, new.kind) + sequence, new.data);
        let (old, new) = (format!("{room}/{old}"), format!("{room}/{name}"));
        let swap = async || match self.client.swap(&old, &new, data).await {
            // The request whose answer was lost may have done it.
            Err(Trouble::NoNode | Trouble::Exists) => self.client.read(&new).await.map(drop),
            swapped => swapped,
        };
        Ok(there(self.client.again(swap).await)?.map(|()| name))
    }

    async fn conflict(&self, claim: &Claim, line: &[Node]) -> Result<Option<Fail>, Fail> {
        let base = self.base(&claim.name);
        if let Mode::Permits { .. } = claim.mode {
            let others = nodes(&self.children(&base).await?);
            let other = others.iter().find(|node| node.kind != Kind::Room);
            return Ok(other.map(|node| conflict(node.kind)));
        }
        match line.iter().any(|node| node.kind == Kind::Room) {
            true => self.semaphore_at(&base).await,
            false => Ok(None),
        }
    }

    async fn look(&self, room: &str) -> Result<Vec<Stored>, Fail> {
        let found = self.find(room, "").await?.into_iter();
        let stored = found.filter_map(|(name, data, stat)| {
            let since = u64::try_from(stat.ctime).unwrap_or(0);
            Some(Stored {
                node: parse(&name)?,
                data,
                number: stat.czxid,
                since: UNIX_EPOCH + Duration::from_millis(since),
            })
        });
        let mut stored: Vec<_> = stored.collect();
        stored.sort_by(|a, b| (a.node.order, &a.node.name).cmp(&(b.node.order, &b.node.name)));
        Ok(stored)
    }

    async fn names(&self) -> Result<Vec<Name>, Fail> {
        let root = if self.root.is_empty() {
            "/"
        } else {
            &self.root
        };
        let nodes = self.children(root).await?;
        let mut names: Vec<_> = nodes.iter().filter_map(|node| decode(node)).collect();
        names.sort();
        Ok(names)
    }

    async fn trace(&self, name: &Name) -> Result<Option<Vec<u8>>, Fail> {
        let path = self.trace_path(name);
        let read = there(self.client.again(|| self.client.read(&path)).await)?;
        Ok(read.map(|(data, _)| data))
    }

    async fn leave_trace(&self, name: &Name, data: &[u8]) -> Result<(), Fail> {
        self.mkdir(&format!("{}/{EVICTED}", self.root)).await?;
        let path = self.trace_path(name);
        Ok(self.client.again(|| self.client.put(&path, data)).await?)
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

/// None if the node, or the room, does not exist.
fn there<T>(answer: Answer<T>) -> Result<Option<T>, Fail> {
    match answer {
        Err(Trouble::NoNode) => Ok(None),
        answer => Ok(Some(answer?)),
    }
}

fn listed_as((children, watch): (Vec<String>, Watch)) -> Listed {
    Listed {
        nodes: nodes(&children),
        watch: Some(watch),
    }
}

fn overflow(room: &str) -> Fail {
    let what = format!(
        "the sequence below {room} is about to overflow: release every lock of the name, and delete the node (the server \
         does so by itself once the node is empty, unless the sequence has overflowed)"
    );
    Fail::Refused(ErrorKind::Unavailable, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_a_third_after_the_lease() {
        let timeout = |ms| timeout_for(Duration::from_millis(ms)).as_millis();
        assert_eq!([6000, 3000, 250, 1].map(timeout), [8001, 4001, 334, 2]);
    }
}
