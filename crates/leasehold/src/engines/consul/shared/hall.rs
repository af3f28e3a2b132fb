//! Those of this process that wait or hold. Consul's own locks have no line: a client that waits leaves nothing there.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::Id;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::session::Lease;
use crate::claim::ClaimId;
use crate::engines::ordered::Watch;
use crate::sync::Shared;

/// A session of its own, for one permit. It is over when its last user is gone.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) lease: Arc<Lease>,
    pub(super) _over: DropGuard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waits,
    /// A request was sent that may make it hold.
    Asks,
    /// It holds, since the change with this number.
    Holds(u64),
}

/// One claim of this process.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) claim: ClaimId,
    /// The session that its server object has, and that a mutex is held by.
    pub(super) session: String,
    /// The sessions of its permits.
    pub(super) slots: Vec<Arc<Slot>>,
    pub(super) data: Vec<u8>,
    pub(super) since: u64,
    pub(super) phase: Phase,
    /// Cancelled when its session is over.
    pub(super) over: CancellationToken,
    /// The task that it lives in.
    pub(super) task: Option<Id>,
}

impl Place {
    /// Whether it may try now: its own task alone asks for it. Of two requests the later could come after its release, and
    /// a task that gives up leaves only its own request to be settled.
    pub(super) fn tries(&self) -> bool {
        self.phase == Phase::Waits && self.task == tokio::task::try_id()
    }

    pub(super) fn number(&self) -> Option<u64> {
        match self.phase {
            Phase::Holds(number) => Some(number),
            _ => None,
        }
    }
}

/// All claims of this process at one deployment, by their rooms, in order of arrival.
#[derive(Debug)]
pub(super) struct Hall {
    rooms: Shared<HashMap<String, Vec<Place>>>,
    changed: watch::Sender<()>,
}

impl Hall {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            rooms: Shared::default(),
            changed: watch::Sender::new(()),
        })
    }

    /// The claims of a room whose sessions live.
    pub(super) fn places(&self, room: &str) -> Vec<Place> {
        let rooms = self.rooms.lock();
        let places = rooms.get(room).into_iter().flatten();
        places
            .filter(|place| !place.over.is_cancelled())
            .cloned()
            .collect()
    }

    pub(super) fn find(&self, room: &str, claim: ClaimId) -> Option<Place> {
        self.places(room)
            .into_iter()
            .find(|place| place.claim == claim)
    }

    /// Adds a claim at the end; one that is there stays where it is.
    pub(super) fn join(&self, room: &str, place: Place) {
        let mut rooms = self.rooms.lock();
        let places = rooms.entry(room.to_owned()).or_default();
        places.retain(|place| !place.over.is_cancelled());
        if places.iter().all(|other| other.claim != place.claim) {
            places.push(place);
        }
    }

    pub(super) fn set(&self, room: &str, claim: ClaimId, phase: Phase) {
        let mut rooms = self.rooms.lock();
        let places = rooms.get_mut(room).into_iter().flatten();
        places
            .filter(|place| place.claim == claim)
            .for_each(|place| place.phase = phase);
    }

    pub(super) fn remove(&self, room: &str, claim: ClaimId) {
        let mut rooms = self.rooms.lock();
        if let Some(places) = rooms.get_mut(room) {
            places.retain(|place| place.claim != claim && !place.over.is_cancelled());
            if places.is_empty() {
                drop(rooms.remove(room));
            }
        }
        drop(rooms);
        self.changed.send_replace(());
    }

    /// The rooms in use.
    pub(super) fn rooms(&self) -> Vec<String> {
        self.rooms.lock().keys().cloned().collect()
    }

    /// Adds up what a room counts for, given how many of its claims live.
    pub(super) fn count(&self, counts: impl Fn(&str, usize) -> usize) -> usize {
        let rooms = self.rooms.lock();
        let sizes = rooms.iter().map(|(room, places)| {
            let alive = places.iter().filter(|place| !place.over.is_cancelled());
            counts(room, alive.count())
        });
        sizes.sum()
    }

    /// Resolves when a claim is gone.
    pub(super) fn watch(self: &Arc<Self>, room: &str, place: &Place) -> Watch {
        let (hall, room) = (self.clone(), room.to_owned());
        let (claim, over) = (place.claim, place.over.clone());
        Box::pin(async move {
            let mut changed = hall.changed.subscribe();
            while hall.find(&room, claim).is_some() {
                tokio::select! {
                    _ = changed.changed() => {}
                    () = over.cancelled() => return,
                }
            }
        })
    }
}
