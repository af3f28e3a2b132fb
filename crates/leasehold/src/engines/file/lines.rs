//! The lines a session works on, with a bounded number of their files kept open.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::dir::Dir;
use super::error::Trouble;
use super::life::Life;
use super::store::{Lock, Locked, Store};
use super::world::Sessions;
use crate::claim::{ById, IdHasher, SessionId};
use crate::clock::Micros;
use crate::line::Line;
use crate::name::Name;
use crate::sync::Shared;

/// Files kept open by one session.
const OPEN: usize = 128;

/// How often a file that vanishes while it is opened is tried again.
const REOPENED: usize = 100;

/// A session's lines. What is needed for every piece of work is under one lock, and so is the work.
#[derive(Default)]
pub(super) struct Lines {
    drawers: [Shared<Drawer>; DRAWERS],
    /// The session as the directory knows it; none once it is closed. Locked after a drawer, never before.
    life: Shared<Option<Arc<Life>>>,
    open: AtomicUsize,
}

/// Work on names of different drawers is done at the same time.
const DRAWERS: usize = 32;

/// Some of the lines. Its lock also keeps two threads from sharing the lock of a line's file.
#[derive(Default)]
struct Drawer {
    /// Who works here; none once the session is closed.
    session: Option<SessionId>,
    slots: ById<Name, Slot>,
}

/// What a session knows of one line.
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
        self.life.lock().clone()
    }

    /// Begins the session's life, or ends it. Nobody works on a line meanwhile.
    pub(super) fn change_life<T>(&self, change: impl FnOnce(&mut Option<Arc<Life>>) -> T) -> T {
        let mut drawers: Vec<_> = self.drawers.iter().map(Shared::lock).collect();
        let mut life = self.life.lock();
        let changed = change(&mut life);
        for drawer in &mut drawers {
            drawer.session = life.as_ref().map(|life| life.presence.id);
        }
        changed
    }

    /// Works on a line that is known, session or not.
    pub(super) fn known<T>(&self, name: &Name, work: impl FnOnce(&mut Slot) -> T) -> Option<T> {
        self.drawer(name).lock().slots.get_mut(name).map(work)
    }

    /// Works on a line for the session; none once that is closed.
    pub(super) fn work<T>(
        &self,
        name: &Name,
        work: impl FnOnce(&mut Slot, SessionId) -> T,
    ) -> Option<T> {
        let drawer = &mut *self.drawer(name).lock();
        let me = drawer.session?;
        let slot = match drawer.slots.get_mut(name) {
            Some(slot) => slot,
            None => self.add(drawer, name),
        };
        Some(work(slot, me))
    }

    fn drawer(&self, name: &Name) -> &Shared<Drawer> {
        let mut hash = IdHasher::default();
        name.hash(&mut hash);
        // Other bits than those that choose the place in the drawer.
        &self.drawers[(hash.finish() >> 32) as usize % DRAWERS]
    }

    fn add<'a>(&self, drawer: &'a mut Drawer, name: &Name) -> &'a mut Slot {
        if self.open.load(Ordering::Relaxed) >= OPEN {
            self.close_some(drawer);
        }
        drawer.slots.entry(name.clone()).or_default()
    }

    /// The names whose slots are like this.
    pub(super) fn names(&self, like: impl Fn(&Slot) -> bool) -> Vec<Name> {
        let mut names = Vec::new();
        for drawer in &self.drawers {
            let drawer = drawer.lock();
            let like = drawer.slots.iter().filter(|(_, slot)| like(slot));
            names.extend(like.map(|(name, _)| name.clone()));
        }
        names
    }

    /// Forgets a line, if its slot is like this.
    pub(super) fn forget(&self, name: &Name, like: impl Fn(&Slot) -> bool) {
        let slots = &mut self.drawer(name).lock().slots;
        if slots.get(name).is_some_and(like)
            && let Some(mut slot) = slots.remove(name)
        {
            self.close(&mut slot.store);
        }
    }

    /// Closes the files of this drawer, and of those that nobody works in.
    fn close_some(&self, this: &mut Drawer) {
        let mut others: Vec<_> = self.drawers.iter().filter_map(Shared::try_lock).collect();
        let others = others.iter_mut().map(|other| &mut **other);
        for slot in others
            .chain([this])
            .flat_map(|drawer| drawer.slots.values_mut())
        {
            self.close(&mut slot.store);
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
