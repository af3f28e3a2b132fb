//! The lines a session works on, with a bounded number of their files kept open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::dir::Dir;
use super::error::Trouble;
use super::life::Life;
use super::store::{Lock, Locked, Store};
use super::world::Sessions;
use crate::claim::{ById, SessionId};
use crate::clock::Micros;
use crate::line::Line;
use crate::name::Name;
use crate::sync::Shared;

/// Files kept open by one session.
const OPEN: usize = 128;

/// How often a file that vanishes while it is opened is tried again.
const REOPENED: usize = 100;

#[derive(Default)]
pub(super) struct Lines {
    table: Shared<Table>,
    open: AtomicUsize,
}

type Slots = ById<Name, Arc<Shared<Slot>>>;

/// What every piece of work needs, under one lock.
#[derive(Default)]
struct Table {
    /// The session as the directory knows it; none once it is closed.
    life: Option<Arc<Life>>,
    slots: Slots,
}

/// What a session knows of one line. Its lock also keeps two threads from sharing the file's lock.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) store: Option<Store>,
    /// How the line was when the session last looked.
    pub(super) note: Note,
}

/// What a session remembers of a line.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// Whether the session has a claim in it.
    pub(super) mine: bool,
    /// Whom the session's waiting claims wait for.
    pub(super) ahead: Sessions,
    /// Since when nobody holds or waits.
    pub(super) idle: Option<Micros>,
}

/// Which line to work on, and how to get at it.
pub(super) struct Place<'a> {
    pub(super) dir: &'a Dir,
    pub(super) name: &'a Name,
    /// Whether to make its file if there is none.
    pub(super) make: bool,
    /// Looks around when the file had to be opened.
    pub(super) opened: &'a dyn Fn() -> Result<(), Trouble>,
}

impl<'a> Place<'a> {
    /// A line whose file is there already.
    pub(super) fn existing(dir: &'a Dir, name: &'a Name) -> Self {
        Self {
            dir,
            name,
            make: false,
            opened: &|| Ok(()),
        }
    }
}

/// What came of trying to work on a line.
pub(super) enum Tried<T> {
    Done(T),
    /// Somebody else is at work on it.
    Busy,
    /// There is no such line.
    Absent,
}

impl Lines {
    pub(super) fn life(&self) -> Option<Arc<Life>> {
        self.table.lock().life.clone()
    }

    /// Begins the session's life, or ends it. Nobody looks for a line meanwhile.
    pub(super) fn change_life<T>(&self, change: impl FnOnce(&mut Option<Arc<Life>>) -> T) -> T {
        change(&mut self.table.lock().life)
    }

    pub(super) fn slot(&self, name: &Name) -> Arc<Shared<Slot>> {
        self.slot_of(&mut self.table.lock(), name)
    }

    /// A line and who works on it; none once the session is closed.
    pub(super) fn slot_and_session(&self, name: &Name) -> Option<(Arc<Shared<Slot>>, SessionId)> {
        let mut table = self.table.lock();
        let me = table.life.as_ref()?.presence.id;
        Some((self.slot_of(&mut table, name), me))
    }

    fn slot_of(&self, table: &mut Table, name: &Name) -> Arc<Shared<Slot>> {
        if let Some(slot) = table.slots.get(name) {
            return slot.clone();
        }
        if self.open.load(Ordering::Relaxed) >= OPEN {
            self.close_some(&table.slots);
        }
        table.slots.entry(name.clone()).or_default().clone()
    }

    /// The names whose slots are like this.
    pub(super) fn names(&self, like: impl Fn(&Slot) -> bool) -> Vec<Name> {
        let slots: Vec<_> = {
            let table = self.table.lock();
            table
                .slots
                .iter()
                .map(|(name, slot)| (name.clone(), slot.clone()))
                .collect()
        };
        let like = slots.into_iter().filter(|(_, slot)| like(&slot.lock()));
        like.map(|(name, _)| name).collect()
    }

    /// Forgets a line that nobody is at work on, if its slot is like this.
    pub(super) fn forget(&self, name: &Name, like: impl Fn(&Slot) -> bool) {
        let slots = &mut self.table.lock().slots;
        let unused = slots
            .get(name)
            .is_some_and(|slot| Arc::strong_count(slot) == 1 && like(&slot.lock()));
        if unused && let Some(slot) = slots.remove(name) {
            self.close(&mut slot.lock().store);
        }
    }

    /// Closes the files that nobody is at work on: those with the lock of the table held have no other user.
    fn close_some(&self, slots: &Slots) {
        for slot in slots.values().filter(|slot| Arc::strong_count(slot) == 1) {
            self.close(&mut slot.lock().store);
        }
    }

    fn close(&self, store: &mut Option<Store>) {
        if store.take().is_some() {
            let _ = self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Works on a slot's locked file.
    pub(super) fn with<T>(
        &self,
        slot: &mut Option<Store>,
        place: &Place<'_>,
        work: impl FnOnce(Locked<'_>) -> Result<T, Trouble>,
    ) -> Result<Tried<T>, Trouble> {
        for _ in 0..REOPENED {
            if slot.is_none() {
                let store = Store::open(place.dir, place.name, place.make)?;
                (place.opened)()?;
                let opened = usize::from(store.is_some());
                let _ = self.open.fetch_add(opened, Ordering::Relaxed);
                *slot = store;
            }
            let Some(store) = slot else {
                return Ok(Tried::Absent);
            };
            match store.lock()? {
                Lock::Got(locked) => return work(locked).map(Tried::Done),
                Lock::Busy => return Ok(Tried::Busy),
                Lock::Removed => {}
            }
            self.close(slot);
        }
        Ok(Tried::Busy)
    }
}

impl Note {
    /// Takes down what matters of a line to one session.
    pub(super) fn take(&mut self, line: &Line, me: SessionId, now: Micros) {
        self.mine = line.places().any(|place| place.session == me);
        self.idle = line.is_idle().then_some(now);
        self.ahead.clear();
        for place in line.waiters().filter(|place| place.session == me) {
            let ahead = super::world::ahead_of(line, place.id, me);
            self.ahead.extend(ahead);
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
