//! One Consul session as a server of nodes, over keys that other programs lock as well.
//!
//! Such a lock has no line: the nodes are its holder, and after it those of this process that wait. Whenever they are
//! listed, the first of them tries to take what is free.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::super::client::Http;
use super::super::client::kv::Entry;
use super::super::client::trouble::Trouble;
use super::super::names::node_name;
use super::super::server::ConsulServer;
use super::super::stored::{now, number_of, room_node, unstamp};
use super::hall::{Hall, Phase, Place, Slot};
use super::layout::{Layout, QUEUE};
use super::room::{Room, room};
use crate::claim::{Claim, ClaimId, Mode};
use crate::engine::Inbox;
use crate::engines::ordered::{
    Fail, FenceFloor, Kind, Listed, Made, New, Node, Rooms, Server, Stored, Watch,
};
use crate::error::{ErrorKind, Result};
use crate::name::Name;
use crate::sync::Shared;

/// One Consul session, and more of them for permits.
#[derive(Debug)]
pub(in crate::engines::consul) struct SharedServer {
    pub(super) own: Arc<ConsulServer>,
    pub(super) hall: Arc<Hall>,
    pub(super) layout: Layout,
    pub(super) floor: Arc<AtomicU64>,
    /// Sessions that no permit uses now.
    pub(super) spare: Shared<Vec<Arc<Slot>>>,
}

pub(super) fn node(name: &str, order: i64, claim: Option<ClaimId>) -> Node {
    Node {
        name: name.to_owned(),
        kind: Kind::Mutex,
        order,
        claim,
        weight: 1,
    }
}

/// The name of a holder that is looked at: its session, and the number of the change, for a session may hold again later.
fn holder(entry: &Entry) -> String {
    format!("{}@{}", entry.session, entry.modified)
}

/// The refusal of a key that is none of a lock's.
pub(super) fn left_over(key: &str) -> Fail {
    let what = format!(
        "the key {key} is in Consul and is no lock of this kind: use another name, or delete the key if no program needs it"
    );
    Fail::Refused(ErrorKind::Conflict, what)
}

impl SharedServer {
    pub(super) async fn open(
        http: &Arc<Http>,
        layout: Layout,
        lease: Duration,
        (hall, floor): (&Arc<Hall>, &Arc<AtomicU64>),
        inbox: Inbox,
    ) -> Result<Arc<Self>> {
        let own = ConsulServer::open(http, lease, floor, inbox).await?;
        Ok(Self::with(own, layout, hall, floor))
    }

    pub(super) fn with(
        own: Arc<ConsulServer>,
        layout: Layout,
        hall: &Arc<Hall>,
        floor: &Arc<AtomicU64>,
    ) -> Arc<Self> {
        Arc::new(Self {
            own,
            layout,
            hall: hall.clone(),
            floor: floor.clone(),
            spare: Shared::default(),
        })
    }

    /// Whether a claim of this process is one of this session.
    pub(super) fn has(&self, place: &Place) -> bool {
        place.session == self.own.lease.id
    }

    /// The claim of this process that a node stands for.
    pub(super) fn place(&self, room: &str, name: &str) -> Option<Place> {
        let claim = u128::from_str_radix(name, 16).ok()?;
        self.hall.find(room, ClaimId::from_u128(claim))
    }

    /// The sessions of the permits that claims of this session have or want.
    fn slots_in_use(&self) -> Vec<Arc<Slot>> {
        let rooms = self.hall.rooms();
        let places = rooms.iter().flat_map(|room| self.hall.places(room));
        let ours = places.filter(|place| self.has(place));
        ours.flat_map(|place| place.slots).collect()
    }

    /// Every claim as it is in its room, first the holder.
    fn queue(&self, room: &str) -> Vec<Node> {
        let places = self.hall.places(room);
        let nodes = (0..).zip(&places);
        let nodes = nodes.map(|(at, place)| node(&node_name(place.claim), at, Some(place.claim)));
        nodes.collect()
    }

    /// Other processes wait, or may: Consul does not tell. So a grant is passed on after its bound of turns.
    fn wanted(mut listed: Listed) -> Listed {
        listed.nodes.push(node("%others", i64::MAX, None));
        listed
    }

    async fn leave(&self, at: &str, place: &Place) -> Result<bool, Fail> {
        match room(at) {
            Room::Mutex => self.leave_mutex(at, place).await,
            Room::Permits => self.leave_permits(at, place).await,
            Room::Queue => {
                self.hall.remove(at, place.claim);
                Ok(true)
            }
        }
    }

    async fn list_room(&self, at: &str, blind: bool) -> Result<Listed, Fail> {
        match room(at) {
            Room::Mutex => Ok(Self::wanted(self.list_mutex(at, blind).await?)),
            Room::Permits => self.list_permits(at).await,
            Room::Queue => Ok(Self::wanted(Listed {
                nodes: self.queue(at),
                watch: None,
            })),
        }
    }
}

#[async_trait]
impl Server for SharedServer {
    const KIND: &'static str = ConsulServer::KIND;

    fn timeout(&self) -> Duration {
        self.own.timeout()
    }

    fn fits(&self, lease: Duration) -> bool {
        self.own.fits(lease)
    }

    fn fence_floor(&self) -> FenceFloor {
        self.own.fence_floor()
    }

    fn over(&self) -> &CancellationToken {
        self.own.over()
    }

    async fn close(self: Arc<Self>) {
        let mut slots = self.slots_in_use();
        slots.append(&mut self.spare.lock());
        self.own.clone().close().await;
        for slot in slots {
            slot.lease.ended.cancelled().await;
        }
    }

    async fn ready(&self) -> Result<(), Fail> {
        self.own.ready().await
    }

    async fn prove(&self) -> Result<(), Fail> {
        self.own.prove().await?;
        let mut renewals = JoinSet::new();
        for slot in self.slots_in_use() {
            let _ = renewals.spawn(async move { slot.lease.renew().await });
        }
        while let Some(renewed) = renewals.join_next().await {
            match renewed {
                // One that is over is seen in the list of its semaphore.
                Ok(Ok(()) | Err(Trouble::Dead(_))) | Err(_) => {}
                Ok(Err(trouble)) => return Err(trouble.into()),
            }
        }
        Ok(())
    }

    fn rooms(&self, name: &Name, mode: Mode) -> Rooms {
        let dir = self.layout.dir(name);
        match mode {
            Mode::Permits { .. } => Rooms {
                line: format!("{dir}{QUEUE}"),
                permits: Some(dir),
            },
            _ => Rooms {
                line: self.layout.mutex(name),
                permits: None,
            },
        }
    }

    async fn make(&self, at: &str, new: &New<'_>, count: u32) -> Result<Made, Fail> {
        if let Kind::Read | Kind::Write = new.kind {
            let what = "Consul's own layout has no read/write locks: leave out layout=consul, or use a mutex";
            return Err(Fail::Refused(ErrorKind::Unsupported, what.to_owned()));
        }
        self.has_room(at)?;
        let place = Place {
            claim: new.claim,
            session: self.own.lease.id.clone(),
            slots: Vec::new(),
            data: new.data.to_vec(),
            since: now(),
            phase: Phase::Waits,
            over: self.own.lease.over.clone(),
            task: tokio::task::try_id(),
        };
        match room(at) {
            Room::Permits => self.make_permits(at, place, count).await?,
            _ => self.hall.join(at, place),
        }
        let name = node_name(new.claim);
        let listed = self.list_room(at, true).await?;
        Ok(Made {
            number: self.number(at, &name).unwrap_or(0),
            names: vec![name],
            listed,
        })
    }

    async fn clear(&self, at: &str, claim: ClaimId) -> Result<bool, Fail> {
        match self.hall.find(at, claim) {
            Some(place) => self.leave(at, &place).await,
            None => Ok(false),
        }
    }

    async fn list(&self, at: &str) -> Result<Listed, Fail> {
        self.list_room(at, false).await
    }

    async fn read(&self, at: &str, name: &str) -> Result<Option<(Vec<u8>, Watch)>, Fail> {
        match room(at) {
            Room::Mutex => self.read_mutex(at, name).await,
            Room::Permits => self.read_permits(at, name).await,
            Room::Queue => Ok(self.place(at, name).map(|place| {
                let watch = self.hall.watch(at, &place);
                (place.data, watch)
            })),
        }
    }

    fn number(&self, at: &str, name: &str) -> Option<i64> {
        self.number_in(at, name)
    }

    /// A value that is written again is another number: only `ask` would, and it is refused before.
    async fn write(&self, _: &str, _: &str, _: &[u8]) -> Result<bool, Fail> {
        Ok(false)
    }

    async fn delete(&self, at: &str, name: &str) -> Result<bool, Fail> {
        let ours = self.place(at, name);
        match ours.filter(|place| self.has(place)) {
            Some(place) => self.leave(at, &place).await,
            None if u128::from_str_radix(name, 16).is_ok() => Ok(false),
            // An eviction, of the session that has it.
            None => {
                let (session, number) = name.rsplit_once('@').unwrap_or((name, ""));
                let number = number.parse().ok();
                match room(at) {
                    Room::Mutex => self.delete_key(at, session, number).await,
                    Room::Permits => self.take_out(at, &[session.to_owned()], number).await,
                    Room::Queue => Ok(false),
                }
            }
        }
    }

    async fn downgrade(&self, _: &str, _: &str, _: &New<'_>) -> Result<Option<String>, Fail> {
        Ok(None)
    }

    async fn conflict(&self, _: &Claim, _: &[Node]) -> Result<Option<Fail>, Fail> {
        // The flags of the key tell, wherever it is looked at.
        Ok(None)
    }

    async fn look(&self, at: &str) -> Result<Vec<Stored>, Fail> {
        let mut seen = Vec::new();
        match room(at) {
            Room::Mutex => {
                let key = self.own.again(|| self.own.http.key(at)).await?;
                let held = key
                    .as_ref()
                    .filter(|entry| entry.flags == super::layout::LOCK);
                if let Some(entry) = held.filter(|entry| !entry.session.is_empty()) {
                    seen.push(stored(
                        node(&holder(entry), 0, None),
                        &entry.value,
                        entry.modified,
                    )?);
                }
                // Tells `inspect` to look at the rooms of a semaphore.
                let mut apart = node(at, i64::MAX, None);
                apart.kind = room_node(at).kind;
                seen.push(stored(apart, b"", 0)?);
            }
            Room::Permits => {
                let now = match self.permits_now(at).await {
                    Err(Fail::Refused(ErrorKind::Conflict, _)) => return Ok(seen),
                    now => now?,
                };
                for session in &now.holders.sessions {
                    let Some(entry) = now.contender(at, session) else {
                        continue;
                    };
                    let node = Node {
                        kind: Kind::Permit,
                        ..node(&holder(entry), 0, None)
                    };
                    seen.push(stored(node, &entry.value, entry.modified)?);
                }
            }
            Room::Queue => {}
        }
        // A claim that takes permits is in line until it has them.
        if !matches!(room(at), Room::Permits) {
            let waiting = self
                .hall
                .places(at)
                .into_iter()
                .filter(|place| place.number().is_none());
            for (order, place) in (1..).zip(waiting) {
                let node = node(&node_name(place.claim), order, Some(place.claim));
                seen.push(Stored {
                    node,
                    data: place.data,
                    number: 0,
                    since: UNIX_EPOCH + Duration::from_millis(place.since),
                });
            }
        }
        seen.sort_by_key(|stored| stored.node.order);
        Ok(seen)
    }

    async fn names(&self) -> Result<Vec<Name>, Fail> {
        let start = &self.layout.start;
        let (entries, _) = self.own.again(|| self.own.http.tree(start, None)).await?;
        let mut names: Vec<_> = entries
            .iter()
            .filter_map(|entry| self.layout.name(entry))
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn trace(&self, name: &Name) -> Result<Option<Vec<u8>>, Fail> {
        self.own.trace(name).await
    }

    async fn leave_trace(&self, name: &Name, data: &[u8]) -> Result<(), Fail> {
        self.own.leave_trace(name, data).await
    }
}

fn stored(node: Node, value: &[u8], modified: u64) -> Result<Stored, Fail> {
    let (since, data) = unstamp(value);
    Ok(Stored {
        node,
        data: data.to_vec(),
        number: number_of(modified)?,
        since: UNIX_EPOCH + Duration::from_millis(since),
    })
}
