//! A session's memory of each line it works on.

use std::sync::{Arc, MutexGuard};

use super::store::Store;
use super::transaction::{Sessions, ahead_of};
use crate::claim::{ById, SessionId};
use crate::clock::Micros;
use crate::line::Line;
use crate::name::Name;
use crate::sync::Shared;

/// A session that works on more lines than this closes each file after use.
const MANY: usize = 128;

/// A session's lines. The map may be locked by a thread that has locked a slot, never the other way round.
#[derive(Default)]
pub(super) struct Slots {
    map: Shared<ById<Name, Arc<Shared<Slot>>>>,
}

/// The session's slot for one line. Its lock keeps two threads from sharing the lock of the line's file.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) store: Option<Store>,
    /// How the line was when the session last looked.
    pub(super) note: Note,
    /// Whether the slot is in the map no more.
    pub(super) forgotten: bool,
}

/// A session's memory of a line.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// Whether the session has a claim in it.
    pub(super) mine: bool,
    /// The sessions that the session's waiting claims wait for.
    pub(super) ahead: Sessions,
    /// Since when the line has no claims.
    pub(super) idle: Option<Micros>,
}

impl Note {
    /// The part of a line that matters to one session.
    pub(super) fn of(line: &Line, me: SessionId, now: Micros) -> Self {
        let waits = line.waiters().filter(|place| place.session == me);
        Self {
            mine: line.places().any(|place| place.session == me),
            ahead: waits
                .flat_map(|place| ahead_of(line, place.id, me))
                .collect(),
            idle: line.is_idle().then_some(now),
        }
    }

    /// There is no such line.
    pub(super) fn absent(now: Micros) -> Self {
        Self {
            idle: Some(now),
            ..Self::default()
        }
    }
}

/// About as many looks as one transaction takes.
const LOOKS: usize = 200;

/// Locks a slot; none while another thread is at work on the line, which takes microseconds. A mutex is not fair: one that waited
/// for the slot of a stuck line, to which others come again and again, waited for seconds, and so did the heartbeats behind it.
pub(super) fn enter(slot: &Shared<Slot>) -> Option<MutexGuard<'_, Slot>> {
    (0..LOOKS).find_map(|_| {
        std::hint::spin_loop();
        slot.try_lock()
    })
}

impl Slots {
    /// The slot of a line, made if there is none.
    pub(super) fn of(&self, name: &Name) -> Arc<Shared<Slot>> {
        let mut map = self.map.lock();
        match map.get(name) {
            Some(slot) => slot.clone(),
            None => map.entry(name.clone()).or_default().clone(),
        }
    }

    /// Whether there are too many to keep the file of each open.
    pub(super) fn are_many(&self) -> bool {
        self.map.lock().len() > MANY
    }

    /// The lines with their slots.
    pub(super) fn all(&self) -> ById<Name, Arc<Shared<Slot>>> {
        self.map.lock().clone()
    }

    /// The names of the lines whose slots are like this.
    pub(super) fn names(&self, like: impl Fn(&Slot) -> bool) -> Vec<Name> {
        let like = self
            .all()
            .into_iter()
            .filter(|(_, slot)| like(&slot.lock()));
        like.map(|(name, _)| name).collect()
    }

    /// Forgets a locked slot: it is used no more.
    pub(super) fn forget(&self, name: &Name, slot: &mut Slot) {
        let _ = self.map.lock().remove(name);
        slot.forgotten = true;
        slot.store = None;
    }
}
