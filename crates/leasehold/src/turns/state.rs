//! Who waits and who uses which grant of one name, inside this process.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Bound;
use super::ask::Ask;
use super::local::Local;
use super::owner::Who;
use super::turn::{Front, Turn};
use crate::claim::Mode;
use crate::clock::{Micros, micros};
use crate::fence::Fence;
use crate::session::{Grant, State as Validity};

/// Everything under the local line's lock.
#[derive(Default)]
pub(super) struct State {
    /// Tasks that wait, in order of arrival.
    pub(super) queue: VecDeque<Waiter>,
    next_ticket: u64,
    /// Whether a task of this process is at the engine. Nobody passes it.
    pub(super) front: bool,
    /// The grants of this process on the name.
    pub(super) actives: Vec<Active>,
    /// Room for the users of the next grant.
    room: Vec<User>,
}

pub(super) struct Waiter {
    ticket: u64,
    ask: Ask,
    tell: oneshot::Sender<Wake>,
}

/// What a waiting task is woken with.
pub(super) enum Wake {
    Turn(Turn),
    Front(Front),
}

/// Wakes to be sent once the lock is released: a wake nobody takes any more comes back through it.
pub(super) type Wakes = Vec<(oneshot::Sender<Wake>, Wake)>;

/// One grant of this process and who uses it.
pub(super) struct Active {
    pub(super) grant: Arc<Grant>,
    pub(super) mode: Mode,
    pub(super) users: Vec<User>,
    /// How long to keep it after its last turn, for this process.
    pub(super) linger: Duration,
    /// Until when to keep it, for nobody.
    pub(super) at_least: Option<Micros>,
    /// Set while it is kept without a user.
    pub(super) parked: Option<Parked>,
    /// Whether other tasks may use it.
    shared: bool,
    keep_alive: bool,
}

pub(super) struct Parked {
    pub(super) until: Micros,
    /// A parked grant has no guard that keeps its line alive, so it does that itself.
    pub(super) _home: Arc<Local>,
    /// Kept for this process (linger), not for nobody (min-hold).
    pub(super) reusable: bool,
}

pub(super) struct User {
    pub(super) fence: Fence,
    pub(super) who: Who,
    pub(super) depth: u32,
    pub(super) place: &'static Location<'static>,
}

impl State {
    pub(super) fn join(&mut self, ask: Ask) -> (u64, oneshot::Receiver<Wake>) {
        let (tell, told) = oneshot::channel();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.queue.push_back(Waiter { ticket, ask, tell });
        (ticket, told)
    }

    /// Gives up a place in the queue, if it is still there.
    pub(super) fn leave(&mut self, ticket: u64) {
        if let Ok(index) = self.queue.binary_search_by_key(&ticket, |w| w.ticket) {
            drop(self.queue.remove(index));
        }
    }

    /// Serves whoever is first in line, as far as that is possible now.
    pub(super) fn advance(&mut self, local: &Arc<Local>, wakes: &mut Wakes) {
        while !self.front {
            let Some(first) = self.queue.front() else {
                return;
            };
            let ask = &first.ask;
            let bound = local.bound;
            let wake = if let Some(active) = self.actives.iter_mut().find(|a| a.serves(ask, bound))
            {
                let Some(turn) = active.turn(local, ask) else {
                    return;
                };
                Wake::Turn(turn)
            } else if self.actives.iter().any(|a| a.will_serve(ask, bound)) {
                return;
            } else {
                self.front = true;
                Wake::Front(Front::new(local))
            };
            wakes.extend(self.queue.pop_front().map(|first| (first.tell, wake)));
        }
    }

    /// A turn at once, if a grant of this process can serve it and nobody is before it.
    pub(super) fn serve(&mut self, local: &Arc<Local>, ask: &Ask) -> Option<Turn> {
        if self.front || !self.queue.is_empty() {
            return None;
        }
        let active = self
            .actives
            .iter_mut()
            .find(|a| a.serves(ask, local.bound))?;
        active.turn(local, ask)
    }

    /// Whether a try has no chance: somebody of this process is before it.
    pub(super) fn surely_busy(&self, ask: &Ask) -> bool {
        !self.queue.is_empty() || self.actives.iter().any(|a| a.excludes(ask))
    }

    /// A grant that nobody uses is no longer of this process.
    pub(super) fn forget(&mut self, index: usize) {
        let active = self.actives.swap_remove(index);
        self.room = active.users;
        self.room.clear();
    }

    /// A new grant, with its first user: that one's fence.
    pub(super) fn add(&mut self, local: &Local, grant: Arc<Grant>, ask: &Ask) -> Option<Fence> {
        let mut active = Active::new(grant, ask, std::mem::take(&mut self.room));
        if !ask.min_hold.is_zero() {
            // Counted from here: the grant may say when it was asked for.
            let now = local.keeper().clock().now();
            active.at_least = Some(now.saturating_add(micros(ask.min_hold)));
        }
        let fence = active.admit(local, ask);
        self.actives.push(active);
        fence
    }

    pub(super) fn find(&mut self, grant: &Arc<Grant>) -> Option<usize> {
        self.actives
            .iter()
            .position(|a| Arc::ptr_eq(&a.grant, grant))
    }

    /// The same owner again: one deeper, same fence, no round trip.
    pub(super) fn reenter(&mut self, local: &Arc<Local>, ask: &Ask) -> Option<Turn> {
        let mut held = self
            .actives
            .iter_mut()
            .filter(|a| a.mode == ask.mode || a.mode == Mode::Write);
        held.find_map(|active| {
            if active.grant.state() == Validity::Lost {
                return None;
            }
            let user = active.users.iter_mut().find(|user| user.who == ask.who)?;
            user.depth += 1;
            Some(Turn::new(local.clone(), active.grant.clone(), user.fence))
        })
    }

    /// The user of this name who runs where `who` runs.
    pub(super) fn user(&self, who: Who) -> Option<(&Active, &User)> {
        let users = self
            .actives
            .iter()
            .flat_map(|a| a.users.iter().map(move |user| (a, user)));
        users.into_iter().find(|(_, user)| user.who == who)
    }
}

impl Active {
    fn new(grant: Arc<Grant>, ask: &Ask, users: Vec<User>) -> Self {
        Self {
            mode: grant.claim.mode,
            grant,
            users,
            linger: ask.linger,
            at_least: None,
            parked: None,
            shared: !ask.strict,
            keep_alive: ask.keep_alive,
        }
    }

    fn turn(&mut self, local: &Arc<Local>, ask: &Ask) -> Option<Turn> {
        let fence = self.admit(local, ask)?;
        Some(Turn::new(local.clone(), self.grant.clone(), fence))
    }

    /// One more user, with a fence of its own; none if the block is used up.
    fn admit(&mut self, local: &Local, ask: &Ask) -> Option<Fence> {
        let fence = self.grant.next_fence()?;
        if self.parked.take().is_some() {
            local.keeper().park(&self.grant, None);
        }
        self.linger = self.linger.max(ask.linger);
        self.users.push(User {
            fence,
            who: ask.who,
            depth: 1,
            place: ask.place,
        });
        Some(fence)
    }

    /// Whether this grant can serve the ask right now.
    fn serves(&self, ask: &Ask, bound: Bound) -> bool {
        let free = self.users.is_empty() || (self.mode == Mode::Read);
        free && self.parked.as_ref().is_none_or(|parked| parked.reusable)
            && self.will_serve(ask, bound)
            && self.grant.state() != Validity::Lost
    }

    /// Whether this grant can serve the ask once its present turn ends. Whoever waits is looked at again when the
    /// grant is lost, so this does not read the clock.
    fn will_serve(&self, ask: &Ask, bound: Bound) -> bool {
        let within = !self.grant.is_wanted()
            || (self.grant.turns() < bound.turns && self.grant.age() < bound.time);
        self.shared
            && !ask.strict
            && self.mode == ask.mode
            && (ask.mode.exclusive() || ask.mode == Mode::Read)
            // A fixed lease and a minimum hold count from a grant of one's own.
            && self.keep_alive
            && ask.keep_alive
            && ask.min_hold.is_zero()
            && self.grant.claim.lease == ask.lease
            && within
            && self.grant.has_fences()
            && !self.grant.is_asked()
            && self.grant.why_lost().is_none()
    }

    /// Whether this grant alone makes the ask wait.
    fn excludes(&self, ask: &Ask) -> bool {
        let alone = self.mode.exclusive() || ask.mode.exclusive();
        let kept = !self.users.is_empty() || self.parked.is_some();
        let same_line = self.mode.capacity() == ask.mode.capacity();
        alone && kept && same_line && self.grant.state() != Validity::Lost
    }
}
