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
use crate::error::Error;
use crate::fence::Fence;
use crate::session::{Confirmed, Grant, Parked, State as Validity};

/// Everything under the local line's lock.
#[derive(Default)]
pub(super) struct State {
    /// Tasks that wait, in order of arrival.
    pub(super) queue: VecDeque<Waiter>,
    next_ticket: u64,
    /// Set while a task of this process is at the engine, with what the engine says of its claim. No task passes it.
    pub(super) front: Option<Confirmed>,
    /// When a grant of this process, or a place in the engine's line, was last seen.
    pub(super) busy_until: Micros,
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
    /// The task at the engine failed, or the client is shut down.
    Failed(Error),
}

/// Wakes to be sent once the lock is released: a wake whose task is gone comes back through it.
pub(super) type Wakes = Vec<(oneshot::Sender<Wake>, Wake)>;

/// One grant of this process and who uses it.
pub(super) struct Active {
    pub(super) grant: Arc<Grant>,
    pub(super) mode: Mode,
    pub(super) users: Vec<User>,
    /// How long to keep it after its last turn, for this process.
    pub(super) linger: Duration,
    /// Until when to keep every process out (minimum hold).
    pub(super) at_least: Option<Micros>,
    /// Set while it is kept without a user.
    pub(super) idle: Option<Idle>,
    /// Set while the engine is asked to make it a reader.
    pub(super) settling: bool,
    /// Whether other tasks may use it.
    shared: bool,
    keep_alive: bool,
}

/// A grant without a user.
pub(super) struct Idle {
    pub(super) kept: Parked,
    /// It has no guard that keeps its line alive, so it does that itself.
    pub(super) _home: Arc<Local>,
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
        while self.front.is_none() {
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
                self.front = Some(ask.confirmed.clone());
                Wake::Front(Front::new(local))
            };
            wakes.extend(self.queue.pop_front().map(|first| (first.tell, wake)));
        }
    }

    /// This task goes to the engine.
    pub(super) fn go(&mut self, local: &Arc<Local>, ask: &Ask) -> Front {
        self.front = Some(ask.confirmed.clone());
        Front::new(local)
    }

    /// Tasks that wait fail with the same error: those whose lease is no longer than this.
    pub(super) fn fail(&mut self, error: &Error, lease: Duration, wakes: &mut Wakes) {
        let (failed, stay): (VecDeque<_>, _) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|waiter| waiter.ask.terms.lease <= lease);
        self.queue = stay;
        let failed = failed.into_iter();
        wakes.extend(failed.map(|waiter| (waiter.tell, Wake::Failed(error.again()))));
    }

    /// Whether the name was seen in use since then: by a grant of this process, or by a claim that the engine let wait.
    pub(super) fn seen_busy(&self, since: Micros) -> bool {
        self.busy_until >= since || self.is_busy()
    }

    /// Whether the name is known to be in use: by a grant of this process, or by a claim that the engine let wait.
    fn is_busy(&self) -> bool {
        self.front.as_ref().is_some_and(Confirmed::get) || self.actives.iter().any(Active::in_use)
    }

    /// A turn at once, if a grant of this process can serve it and nobody is before it.
    pub(super) fn serve(&mut self, local: &Arc<Local>, ask: &Ask) -> Option<Turn> {
        if self.front.is_some() || !self.queue.is_empty() {
            return None;
        }
        let active = self
            .actives
            .iter_mut()
            .find(|a| a.serves(ask, local.bound))?;
        active.turn(local, ask)
    }

    /// Whether a try has no chance, as far as this process knows: a grant in use excludes it, or a task waits before it
    /// for a name that is in use. A task whose claim the engine has not answered yet proves nothing.
    pub(super) fn surely_busy(&self, ask: &Ask) -> bool {
        let behind = self.front.is_some() || !self.queue.is_empty();
        let excluded = |active: &Active| active.in_use() && active.excludes(ask);
        (behind && self.is_busy()) || self.actives.iter().any(excluded)
    }

    /// A grant without a user is no longer of this process.
    pub(super) fn forget(&mut self, index: usize, now: Micros) {
        let active = self.actives.swap_remove(index);
        self.busy_until = now;
        self.room = active.users;
        self.room.clear();
    }

    /// Takes one grant that only lingers out of this line: the caller gives it back.
    pub(super) fn take_idle(&mut self, which: impl Fn(&Active) -> bool) -> Option<Arc<Grant>> {
        let lingers = |active: &Active| active.idle.is_some() && !active.in_use();
        let index = self.actives.iter().position(|a| lingers(a) && which(a))?;
        Some(self.actives.swap_remove(index).grant)
    }

    /// A new grant, with its first user: that one's fence.
    pub(super) fn add(&mut self, local: &Local, grant: Arc<Grant>, ask: &Ask) -> Option<Fence> {
        let mut active = Active::new(grant, ask, std::mem::take(&mut self.room));
        let min_hold = ask.terms.min_hold;
        if !min_hold.is_zero() {
            // Counted from here: the grant may say when it was asked for.
            active.at_least = Some(local.now().saturating_add(micros(min_hold)));
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

    /// The user of this name who runs where `who` runs.
    pub(super) fn user(&self, who: Who) -> Option<(&Active, &User)> {
        let users = self
            .actives
            .iter()
            .flat_map(|a| a.users.iter().map(move |user| (a, user)));
        users.into_iter().find(|(_, user)| user.who == who)
    }
}

/// The same owner again: one deeper, same fence, no round trip.
pub(super) fn reenter(actives: &mut [Active], local: &Arc<Local>, ask: &Ask) -> Option<Turn> {
    let mut held = actives
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

impl Active {
    fn new(grant: Arc<Grant>, ask: &Ask, users: Vec<User>) -> Self {
        Self {
            mode: grant.claim.mode,
            grant,
            users,
            linger: ask.linger(),
            at_least: None,
            idle: None,
            settling: false,
            shared: !ask.terms.strict,
            keep_alive: ask.terms.keep_alive,
        }
    }

    fn turn(&mut self, local: &Arc<Local>, ask: &Ask) -> Option<Turn> {
        let fence = self.admit(local, ask)?;
        Some(Turn::new(local.clone(), self.grant.clone(), fence))
    }

    /// One more user, with a fence of its own; none if the block is used up.
    fn admit(&mut self, local: &Local, ask: &Ask) -> Option<Fence> {
        let fence = self.grant.next_fence()?;
        if self.idle.take().is_some() {
            local.keeper().park(&self.grant, None);
        }
        self.linger = self.linger.max(ask.linger());
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
        free && !self.settling
            && self.idle.as_ref().is_none_or(|idle| idle.kept.reusable)
            && self.will_serve(ask, bound)
            && self.grant.state() != Validity::Lost
    }

    /// Whether this grant can serve the ask once its present turn ends. Waiting tasks are looked at again when the grant
    /// is lost, so this does not read the clock.
    fn will_serve(&self, ask: &Ask, bound: Bound) -> bool {
        let within = !self.grant.is_wanted()
            || (self.grant.turns() < bound.turns && self.grant.age() < bound.time);
        self.shared
            && !ask.terms.strict
            && self.mode == ask.mode
            && (ask.mode.exclusive() || ask.mode == Mode::Read)
            // A fixed lease and a minimum hold count from a grant of one's own.
            && self.keep_alive
            && ask.terms.keep_alive
            && ask.terms.min_hold.is_zero()
            && self.grant.claim.lease == ask.terms.lease
            && within
            && self.grant.has_fences()
            && !self.grant.is_asked()
            && self.grant.why_lost().is_none()
    }

    /// Whether this grant and the ask exclude each other.
    pub(super) fn excludes(&self, ask: &Ask) -> bool {
        let alone = self.mode.exclusive() || ask.mode.exclusive();
        alone && self.mode.capacity() == ask.mode.capacity()
    }

    /// Whether a task of this process uses it, or its minimum hold keeps every process out. What only lingers is not in
    /// use.
    fn in_use(&self) -> bool {
        let kept = self.idle.as_ref().is_some_and(|idle| !idle.kept.reusable);
        (!self.users.is_empty() || kept) && self.grant.state() != Validity::Lost
    }

    /// No other task gets a turn at it any more.
    pub(super) fn keep_to_itself(&mut self) {
        self.shared = false;
        self.linger = Duration::ZERO;
    }
}
