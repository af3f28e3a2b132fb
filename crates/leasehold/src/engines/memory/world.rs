//! Shared by the sessions of one memory engine: the lines, and when a line is forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};

use crate::claim::{ById, SessionId};
use crate::clock::Micros;
use crate::engine::{Clock, Ended, Event, Identity, Inbox};
use crate::line::{Change, Line, Moment};
use crate::name::Name;
use crate::sync::Shared;

/// Everything the sessions of one memory engine share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) clock: Clock,
    /// Other engines of this process find the lines by it; empty for lines of one engine alone.
    pub(super) label: String,
    /// How far the wall clock was ahead when all began. Fences follow it from there, also when it is set back.
    wall_ahead: Micros,
    pub(super) state: Shared<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) lines: ById<Name, Kept>,
    pub(super) idle: Idle,
    pub(super) sessions: ById<SessionId, (Identity, Inbox)>,
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) line: Line,
    /// Whether its name is among the idle ones.
    listed: bool,
}

/// Names that became idle, in that order, each with its last fence: once the clock has passed that, the line can be
/// forgotten.
pub(super) type Idle = VecDeque<(u64, Name)>;

/// So many idle names are remembered: a name that was used is often used again.
const REMEMBERED: usize = 64;

impl World {
    pub(super) fn new(clock: Clock, label: String) -> Arc<Self> {
        let wall_ahead = clock.wall().saturating_sub(clock.now());
        let state = Shared::default();
        Arc::new(Self {
            clock,
            label,
            wall_ahead,
            state,
        })
    }

    /// The lines of this label, wherever in this process they are asked for.
    pub(super) fn labelled(label: &str) -> Arc<Self> {
        let mut labels = labels().lock();
        if let Some(world) = labels.get(label).and_then(Weak::upgrade) {
            return world;
        }
        let world = Self::new(Clock::boot(), label.to_owned());
        let _ = labels.insert(label.to_owned(), Arc::downgrade(&world));
        world
    }

    pub(super) fn moment(&self) -> Moment {
        let now = self.clock.now();
        let floor = now + self.wall_ahead;
        Moment { now, floor }
    }

    /// Tells the sessions, without the lock: their next call may come back here.
    pub(super) fn tell(&self, told: Vec<(Inbox, Event)>) {
        for (inbox, event) in told {
            inbox.deliver(event);
        }
    }
}

/// The labels in use.
pub(super) fn labels() -> &'static Shared<HashMap<String, Weak<World>>> {
    static LABELS: OnceLock<Shared<HashMap<String, Weak<World>>>> = OnceLock::new();
    LABELS.get_or_init(Shared::default)
}

impl Drop for World {
    fn drop(&mut self) {
        if self.label.is_empty() {
            return;
        }
        let mut labels = labels().lock();
        // Lines with the same label may have been made anew meanwhile.
        if labels
            .get(&self.label)
            .is_some_and(|world| world.strong_count() == 0)
        {
            let _ = labels.remove(&self.label);
        }
    }
}

impl Kept {
    /// Remembers to forget the line, if it is idle.
    pub(super) fn list(&mut self, name: &Name, idle: &mut Idle) {
        if self.line.is_idle() && !self.listed {
            self.listed = true;
            idle.push_back((self.line.last_fence(), name.clone()));
        }
    }
}

impl State {
    /// Forgets the empty lines whose last fence the clock has passed, but for a few.
    pub(super) fn tidy(&mut self, at: Moment) {
        let passed = |(last, _): &(u64, Name)| *last < at.floor;
        while self.idle.len() > REMEMBERED && self.idle.front().is_some_and(passed) {
            let Some((_, name)) = self.idle.pop_front() else {
                return;
            };
            let Some(kept) = self.lines.get_mut(&name) else {
                continue;
            };
            if forgettable(&kept.line, at) {
                drop(self.lines.remove(&name));
            } else {
                kept.listed = false;
                kept.list(&name, &mut self.idle);
            }
        }
    }

    pub(super) fn address(
        &self,
        changes: Vec<Change>,
        evicted: Option<&Ended>,
    ) -> Vec<(Inbox, Event)> {
        let addressed = changes.into_iter().filter_map(|change| {
            let (_, inbox) = self.sessions.get(&change.session)?;
            Some((inbox.clone(), change.event(evicted)))
        });
        addressed.collect()
    }
}

/// Whether nothing need be remembered of a line: it is empty, and the clock has passed its last fence.
fn forgettable(line: &Line, at: Moment) -> bool {
    line.is_idle() && line.last_fence() < at.floor
}
