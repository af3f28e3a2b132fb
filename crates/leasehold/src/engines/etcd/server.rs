//! A session at etcd as a server that orders nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::client::proto::{KeyValue, RangeRequest, WatchCreate};
use super::names::{self, EVICTED, encode, node_name, split};
use super::session::{EtcdServer, revision, seconds_for};
use super::txn::{Txn, range, ranges, whole};
use crate::claim::{Claim, ClaimId, Mode};
use crate::engines::ordered::data::Note;
use crate::engines::ordered::{
    Fail, FenceFloor, Kind, Listed, Made, New, Node, Rooms, Server, Stored, Watch, conflict,
};
use crate::error::{Error, Result};
use crate::line::Refusal;
use crate::name::Name;

/// How long a holder holds before it watches the claims behind it: locks that are released sooner save the request.
const SOON: Duration = Duration::from_millis(5);

/// How long the trace of an eviction is kept, in seconds.
const TRACED: i64 = 24 * 3600;

impl EtcdServer {
    /// The value of a node's key if it is that node, and the revision of the answer.
    async fn read_node(&self, room: &str, node: &str) -> Result<Option<(KeyValue, i64)>, Fail> {
        let (key, created) = split(node);
        let key = format!("{room}{key}").into_bytes();
        let (found, revision) = self
            .range(RangeRequest {
                key,
                ..RangeRequest::default()
            })
            .await?;
        let same = found
            .into_iter()
            .find(|found| found.create_revision == created);
        Ok(same.map(|found| (found, revision)))
    }

    /// A watch for the next change below a room, or of one key.
    fn watch(&self, key: String, of_room: bool, revision: i64) -> Watch {
        let create = WatchCreate {
            range_end: if of_room {
                names::end(key.as_bytes())
            } else {
                Vec::new()
            },
            key: key.into_bytes(),
            start_revision: revision + 1,
            // A holder is told by its own key of a deletion.
            filters: if of_room { vec![1] } else { Vec::new() },
            watch_id: 0,
        };
        let delay = if of_room { SOON } else { Duration::ZERO };
        Box::pin(self.client.watch(self.lease, create, delay))
    }

    pub(super) fn listed(&self, room: &str, found: &[KeyValue], revision: i64) -> Listed {
        let _ = self.seen.fetch_max(revision, Ordering::AcqRel);
        let every_change = room.ends_with(&format!("/{}/", names::PERMITS));
        let watch = match every_change {
            true => self.watch_permits(room, revision),
            false => self.watch(room.to_owned(), true, revision),
        };
        Listed {
            nodes: names::nodes(room, found),
            watch: Some(watch),
        }
    }

    /// Permits are waited for by the first of the line: it is told when some are given back.
    fn watch_permits(&self, room: &str, revision: i64) -> Watch {
        let create = WatchCreate {
            key: room.as_bytes().to_vec(),
            range_end: names::end(room.as_bytes()),
            start_revision: revision + 1,
            ..WatchCreate::default()
        };
        Box::pin(self.client.watch(self.lease, create, Duration::ZERO))
    }

    /// Why a name in use as a semaphore is refused as another kind. A claim makes its permits before it leaves the line:
    /// read in this order, it is found in one of the two.
    async fn semaphore_at(&self, base: &str) -> Result<Option<Fail>, Fail> {
        for room in [names::LINE, names::PERMITS] {
            let room = format!("{base}{room}/");
            let (found, _) = self.range(whole(&room, false)).await?;
            let first = found.iter().find(|one| names::parse(&room, one).is_some());
            if let Some(first) = first {
                let (data, _) = unpack(&first.value);
                return Ok(Some(match Note::read(data) {
                    Some(note) if note.capacity > 1 => {
                        Error::from(Refusal::Capacity(note.capacity)).into()
                    }
                    _ => conflict(Kind::Permit),
                }));
            }
        }
        Ok(None)
    }

    /// What is stored: the data, and when it was stored first, by our clock: etcd keeps no time.
    pub(super) fn pack(&self, data: &[u8]) -> Vec<u8> {
        let now = self.clock.wall_time_of(self.clock.now());
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        [data, b"\n", since.as_millis().to_string().as_bytes()].concat()
    }
}

/// The data of a value, and when it was stored.
pub(super) fn unpack(value: &[u8]) -> (&[u8], Option<SystemTime>) {
    let Some(at) = value.iter().rposition(|byte| *byte == b'\n') else {
        return (value, None);
    };
    let since = std::str::from_utf8(&value[at + 1..]).ok();
    match since.and_then(|since| since.parse().ok()) {
        Some(since) => (
            &value[..at],
            UNIX_EPOCH.checked_add(Duration::from_millis(since)),
        ),
        None => (value, None),
    }
}

#[async_trait]
impl Server for EtcdServer {
    const KIND: &'static str = "etcd";

    fn timeout(&self) -> Duration {
        self.given
    }

    fn fits(&self, lease: Duration) -> bool {
        let needed = seconds_for(lease);
        let given = i64::try_from(self.given.as_secs()).unwrap_or(i64::MAX);
        // A server that gave more than was asked for gives no shorter lease.
        needed == self.asked || (given > self.asked && needed <= given)
    }

    fn fence_floor(&self) -> FenceFloor {
        self.fence_floor
    }

    fn over(&self) -> &CancellationToken {
        &self.life.over
    }

    async fn close(self: Arc<Self>) {
        // The claims end now, and so does the lease.
        self.life.closing.cancel();
        self.life.over.cancel();
        self.life.closed.cancelled().await;
    }

    async fn ready(&self) -> Result<(), Fail> {
        Ok(self.client.heard().await?)
    }

    async fn prove(&self) -> Result<(), Fail> {
        Ok(self.renew().await?)
    }

    fn rooms(&self, name: &Name, mode: Mode) -> Rooms {
        names::rooms(&self.prefix, name, mode)
    }

    async fn make(&self, room: &str, new: &New<'_>, count: u32) -> Result<Made, Fail> {
        self.make_node(room, new, count).await
    }

    async fn clear(&self, room: &str, claim: ClaimId) -> Result<bool, Fail> {
        let flight = self.flights.lock().remove(&claim);
        if let Some(flight) = flight
            && let Some(generation) = *flight.lock().await
        {
            self.move_on(generation).await?;
        }
        let (found, _) = self.range(whole(room, true)).await?;
        let mut there = false;
        for node in names::nodes(room, &found) {
            if node.claim == Some(claim) {
                there |= self.delete(room, &node.name).await?;
            }
        }
        Ok(there)
    }

    async fn list(&self, room: &str) -> Result<Listed, Fail> {
        let (found, revision) = self.range(whole(room, true)).await?;
        Ok(self.listed(room, &found, revision))
    }

    async fn read(&self, room: &str, node: &str) -> Result<Option<(Vec<u8>, Watch)>, Fail> {
        let Some((found, revision)) = self.read_node(room, node).await? else {
            return Ok(None);
        };
        let watch = self.watch(format!("{room}{}", split(node).0), false, revision);
        Ok(Some((unpack(&found.value).0.to_vec(), watch)))
    }

    fn watch_own(&self, room: &str, node: &str) -> Option<Watch> {
        let key = format!("{room}{}", split(node).0);
        Some(self.watch(key, false, self.seen.load(Ordering::Acquire)))
    }

    async fn write(&self, room: &str, node: &str, data: &[u8]) -> Result<bool, Fail> {
        let (key, created) = split(node);
        // Other programs do not look at the values of their keys: their holders cannot be told.
        if !key.contains('-') {
            return Ok(false);
        }
        let (key, value) = (format!("{room}{key}"), self.pack(data));
        let written = self.txn(|| Txn::new().if_made_at(&key, created).rewrite(&key, &value));
        Ok(written.await?.succeeded)
    }

    async fn delete(&self, room: &str, node: &str) -> Result<bool, Fail> {
        let (key, created) = split(node);
        let key = format!("{room}{key}");
        let tries = AtomicU64::new(0);
        let deleted = self.txn(|| {
            let _ = tries.fetch_add(1, Ordering::Relaxed);
            Txn::new().if_made_at(&key, created).delete(&key)
        });
        let deleted = deleted.await?.succeeded;
        // The request whose answer was lost may have deleted it.
        Ok(deleted || tries.load(Ordering::Relaxed) > 1)
    }

    /// A mutex of Go looks at nothing but the age of keys: one that waits behind the writer would not wait for the younger
    /// key of its reader. With such a waiter in the line the writer's key stays, and keeps readers out as well.
    async fn downgrade(
        &self,
        room: &str,
        old: &str,
        new: &New<'_>,
    ) -> Result<Option<String>, Fail> {
        let (key, created) = split(old);
        let writer = format!("{room}{key}");
        let reader = names::downgraded(self.lease, new.claim, created);
        let (own, value) = (format!("{room}{reader}"), self.pack(new.data));
        loop {
            let (found, seen) = self.range(whole(room, true)).await?;
            let line = names::nodes(room, &found);
            let is_go = |node: &Node| node.kind == Kind::Mutex && node.claim.is_none();
            if line.iter().any(is_go) && line.iter().any(|node| node.name == old) {
                return Ok(Some(old.to_owned()));
            }
            let swapped = self.txn(|| {
                let swap = Txn::new().if_made_at(&writer, created);
                let swap = swap.if_none_after(room, seen).delete(&writer);
                let swap = swap.put(&own, &value, self.lease);
                swap.otherwise(range(&own)).otherwise(range(&writer))
            });
            let swapped = swapped.await?;
            if swapped.succeeded {
                return Ok(Some(node_name(&reader, revision(&swapped))));
            }
            let found: Vec<_> = ranges(&swapped).iter().map(|keys| keys.first()).collect();
            match found[..] {
                // The request whose answer was lost may have done it.
                [Some(made), _] => return Ok(Some(node_name(&reader, made.create_revision))),
                // Another claim has joined meanwhile.
                [None, Some(still)] if still.create_revision == created => {}
                _ => return Ok(None),
            }
        }
    }

    async fn conflict(&self, claim: &Claim, line: &[Node]) -> Result<Option<Fail>, Fail> {
        let base = names::base(&self.prefix, claim);
        if let Mode::Permits { .. } = claim.mode {
            let (found, _) = self.range(whole(&base, true)).await?;
            let others = names::nodes(&base, &found);
            let other = others.iter().find(|node| node.kind != Kind::Room);
            return Ok(other.map(|node| conflict(node.kind)));
        }
        match line.iter().any(|node| node.kind == Kind::Room) {
            true => self.semaphore_at(&base).await,
            false => Ok(None),
        }
    }

    async fn look(&self, room: &str) -> Result<Vec<Stored>, Fail> {
        let (found, _) = self.range(whole(room, false)).await?;
        let now = self.clock.wall_time_of(self.clock.now());
        let stored = found.iter().filter_map(|found| {
            let (data, since) = unpack(&found.value);
            Some(Stored {
                node: names::parse(room, found)?,
                data: data.to_vec(),
                number: found.create_revision,
                since: since.unwrap_or(now),
            })
        });
        let mut stored: Vec<_> = stored.collect();
        stored.sort_by(|a, b| (a.node.order, &a.node.name).cmp(&(b.node.order, &b.node.name)));
        Ok(stored)
    }

    /// Keys in order, a page at a time; what is left of a name that was seen to be one is skipped.
    async fn names(&self) -> Result<Vec<Name>, Fail> {
        const PAGE: i64 = 500;
        let (prefix, mut names) = (self.prefix.as_bytes(), Vec::new());
        let (mut key, range_end) = (prefix.to_vec(), names::end(prefix));
        if key.is_empty() {
            key.push(0);
        }
        loop {
            let (limit, keys_only) = (PAGE, true);
            let range_end = range_end.clone();
            let page = RangeRequest {
                key: key.clone(),
                range_end,
                limit,
                keys_only,
                ..RangeRequest::default()
            };
            let (found, _) = self.range(page).await?;
            for one in &found {
                let Some((room, name)) = names::room_of(&self.prefix, &one.key) else {
                    continue;
                };
                if names::parse(&room, one).is_some() && names.last() != Some(&name) {
                    names.push(name);
                }
            }
            match found.last() {
                Some(last) if found.len() as i64 == PAGE => {
                    key = [&*last.key, b"\0"].concat();
                }
                _ => break,
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn trace(&self, name: &Name) -> Result<Option<Vec<u8>>, Fail> {
        let key = format!("{}{EVICTED}/{}", self.prefix, encode(name)).into_bytes();
        let (found, _) = self
            .range(RangeRequest {
                key,
                ..RangeRequest::default()
            })
            .await?;
        Ok(found.into_iter().next().map(|found| found.value))
    }

    async fn leave_trace(&self, name: &Name, data: &[u8]) -> Result<(), Fail> {
        let key = format!("{}{EVICTED}/{}", self.prefix, encode(name));
        let client = &self.client;
        let kept = client
            .again(&self.life.over, || client.grant(TRACED))
            .await?;
        Ok(self
            .txn(|| Txn::new().put(&key, data, kept.id))
            .await
            .map(drop)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_its_data_again() {
        assert_eq!(unpack(b"x y\n1500").0, b"x y");
        for other in [&b""[..], b"no time", b"two\nlines"] {
            assert_eq!(unpack(other), (other, None));
        }
    }
}
