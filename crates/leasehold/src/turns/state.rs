//! The waiting tasks and the grants of one name, inside this process.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::owner::Who;
use super::queue::Queue;
use super::request::Request;
use super::turn::{EngineTurn, Turn};
use crate::claim::Mode;
use crate::clock::{Micros, micros};
use crate::error::Error;
use crate::fence::Fence;
use crate::session::{Confirmed, Grant, GuardState as Validity, Parked};

/// Everything under the queue's lock.
#[derive(Default)]
pub(super) struct State {
    /// Tasks that wait, in order of arrival.
    pub(super) waiting: VecDeque<Waiter>,
    next_ticket: u64,
    /// Set while a task of this process is at the engine, with what the engine says of its claim. No task passes it.
    pub(super) at_engine: Option<Confirmed>,
    /// When a grant of this process, or a place in the engine's line, was last seen.
    pub(super) busy_until: Micros,
    /// The grants of this process on the name.
    pub(super) actives: Vec<Active>,
    /// Room for the users of the next grant.
    room: Vec<User>,
}

pub(super) struct Waiter {
    ticket: u64,
    request: Request,
    tell: oneshot::Sender<Wake>,
}

/// The message that wakes a waiting task.
pub(super) enum Wake {
    Turn(Turn),
    Engine(EngineTurn),
    /// The task at the engine failed, or the client is shut down.
    Failed(Error),
}

/// Wakes to be sent once the lock is released: a wake whose task is gone comes back through it.
pub(super) type Wakes = Vec<(oneshot::Sender<Wake>, Wake)>;

/// One grant of this process and its users.
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
    /// It has no guard that keeps its queue alive, so it does that itself.
    pub(super) _queue: Arc<Queue>,
}

pub(super) struct User {
    pub(super) fence: Fence,
    pub(super) who: Who,
    pub(super) depth: u32,
    pub(super) place: &'static Location<'static>,
}

impl State {
    pub(super) fn join(&mut self, request: Request) -> (u64, oneshot::Receiver<Wake>) {
        let (tell, told) = oneshot::channel();
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push_back(Waiter {
            ticket,
            request,
            tell,
        });
        (ticket, told)
    }

    /// Gives up a place in the queue, if it is still there.
    pub(super) fn leave(&mut self, ticket: u64) {
        if let Ok(index) = self.waiting.binary_search_by_key(&ticket, |w| w.ticket) {
            drop(self.waiting.remove(index));
        }
    }

    /// Serves the first task in the queue, as far as that is possible now.
    pub(super) fn advance(&mut self, queue: &Arc<Queue>, wakes: &mut Wakes) {
        while self.at_engine.is_none() {
            let Some(first) = self.waiting.front() else {
                return;
            };
            let request = &first.request;
            let wake = if let Some(active) = self.actives.iter_mut().find(|a| a.serves(request)) {
                let Some(turn) = active.turn(queue, request) else {
                    return;
                };
                Wake::Turn(turn)
            } else if self.actives.iter().any(|a| a.will_serve(request)) {
                return;
            } else {
                self.at_engine = Some(request.confirmed.clone());
                Wake::Engine(EngineTurn::new(queue))
            };
            wakes.extend(self.waiting.pop_front().map(|first| (first.tell, wake)));
        }
    }

    /// This task goes to the engine.
    pub(super) fn go(&mut self, queue: &Arc<Queue>, request: &Request) -> EngineTurn {
        self.at_engine = Some(request.confirmed.clone());
        EngineTurn::new(queue)
    }

    /// Tasks that wait fail with the same error: those whose lease is no longer than this.
    pub(super) fn fail(&mut self, error: &Error, lease: Duration, wakes: &mut Wakes) {
        let (failed, stay): (VecDeque<_>, _) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiter| waiter.request.terms.lease <= lease);
        self.waiting = stay;
        let failed = failed.into_iter();
        wakes.extend(failed.map(|waiter| (waiter.tell, Wake::Failed(error.again()))));
    }

    /// Whether the name was seen in use since then: by a grant of this process, or by a claim that the engine let wait.
    pub(super) fn seen_busy(&self, since: Micros) -> bool {
        self.busy_until >= since || self.is_busy()
    }

    /// Whether the name is known to be in use: by a grant of this process, or by a claim that the engine let wait.
    fn is_busy(&self) -> bool {
        self.at_engine.as_ref().is_some_and(Confirmed::get)
            || self.actives.iter().any(Active::in_use)
    }

    /// A turn at once, if a grant of this process can serve it and no task is before it.
    pub(super) fn serve(&mut self, queue: &Arc<Queue>, request: &Request) -> Option<Turn> {
        if self.at_engine.is_some() || !self.waiting.is_empty() {
            return None;
        }
        let active = self.actives.iter_mut().find(|a| a.serves(request))?;
        active.turn(queue, request)
    }

    /// Whether a try has no chance, as far as this process knows: a grant in use excludes it, or a task waits before it
    /// for a name that is in use. A task whose claim the engine has not answered yet proves nothing.
    pub(super) fn surely_busy(&self, request: &Request) -> bool {
        let behind = self.at_engine.is_some() || !self.waiting.is_empty();
        let excluded = |active: &Active| active.in_use() && active.excludes(request);
        (behind && self.is_busy()) || self.actives.iter().any(excluded)
    }

    /// A grant without a user is no longer of this process.
    pub(super) fn forget(&mut self, index: usize, now: Micros) {
        let active = self.actives.swap_remove(index);
        self.busy_until = now;
        self.room = active.users;
        self.room.clear();
    }

    /// Takes one grant that only lingers out: the caller gives it back.
    pub(super) fn take_idle(&mut self, which: impl Fn(&Active) -> bool) -> Option<Arc<Grant>> {
        let lingers = |active: &Active| active.idle.is_some() && !active.in_use();
        let index = self.actives.iter().position(|a| lingers(a) && which(a))?;
        Some(self.actives.swap_remove(index).grant)
    }

    /// A new grant, with its first user: that one's fence.
    pub(super) fn add(
        &mut self,
        queue: &Queue,
        grant: Arc<Grant>,
        request: &Request,
    ) -> Option<Fence> {
        let mut active = Active::new(grant, request, std::mem::take(&mut self.room));
        let min_hold = request.terms.min_hold;
        if !min_hold.is_zero() {
            // Counted from here: the grant may say when it was asked for.
            let until = queue.now().saturating_add(micros(min_hold));
            active.at_least = Some(until);
            // Also if it is lost in use: a lease that is fixed ends a little earlier here than in the engine.
            let reusable = false;
            queue
                .manager()
                .park(&active.grant, Some(Parked { until, reusable }));
        }
        let fence = active.admit(queue, request);
        self.actives.push(active);
        fence
    }

    pub(super) fn find(&mut self, grant: &Arc<Grant>) -> Option<usize> {
        self.actives
            .iter()
            .position(|a| Arc::ptr_eq(&a.grant, grant))
    }

    /// The user of this name that runs where `who` runs.
    pub(super) fn user(&self, who: Who) -> Option<(&Active, &User)> {
        let users = self
            .actives
            .iter()
            .flat_map(|a| a.users.iter().map(move |user| (a, user)));
        users.into_iter().find(|(_, user)| user.who == who)
    }
}

/// The same owner again: one deeper, same fence, no round trip.
pub(super) fn reenter(
    actives: &mut [Active],
    queue: &Arc<Queue>,
    request: &Request,
) -> Option<Turn> {
    let mut held = actives
        .iter_mut()
        .filter(|a| a.mode == request.mode || a.mode == Mode::Write);
    held.find_map(|active| {
        if active.grant.state() == Validity::Lost {
            return None;
        }
        let user = active
            .users
            .iter_mut()
            .find(|user| user.who == request.who)?;
        user.depth += 1;
        Some(Turn::new(queue.clone(), active.grant.clone(), user.fence))
    })
}

impl Active {
    fn new(grant: Arc<Grant>, request: &Request, users: Vec<User>) -> Self {
        Self {
            mode: grant.claim.mode,
            grant,
            users,
            linger: request.linger(),
            at_least: None,
            idle: None,
            settling: false,
            shared: !request.terms.strict,
            keep_alive: request.terms.keep_alive,
        }
    }

    fn turn(&mut self, queue: &Arc<Queue>, request: &Request) -> Option<Turn> {
        let fence = self.admit(queue, request)?;
        Some(Turn::new(queue.clone(), self.grant.clone(), fence))
    }

    /// One more user, with a fence of its own; none if the block is used up.
    fn admit(&mut self, queue: &Queue, request: &Request) -> Option<Fence> {
        let fence = self.grant.next_fence()?;
        if self.idle.take().is_some() {
            queue.manager().park(&self.grant, None);
        }
        self.linger = self.linger.max(request.linger());
        self.users.push(User {
            fence,
            who: request.who,
            depth: 1,
            place: request.place,
        });
        Some(fence)
    }

    /// Whether this grant can serve the request right now.
    fn serves(&self, request: &Request) -> bool {
        let free = self.users.is_empty() || (self.mode == Mode::Read);
        free && !self.settling
            && self.idle.as_ref().is_none_or(|idle| idle.kept.reusable)
            && self.will_serve(request)
            && self.grant.state() != Validity::Lost
    }

    /// Whether this grant can serve the request once its present turn ends. Waiting tasks are looked at again when the grant
    /// is lost, so this does not read the clock.
    fn will_serve(&self, request: &Request) -> bool {
        let bound = request.terms.bound;
        let within = !self.grant.is_wanted()
            || (self.grant.turns() < bound.turns && self.grant.age() < bound.time);
        self.shared
            && !request.terms.strict
            && self.mode == request.mode
            && (request.mode.exclusive() || request.mode == Mode::Read)
            // A fixed lease and a minimum hold count from a grant of one's own.
            && self.keep_alive
            && request.terms.keep_alive
            && request.terms.min_hold.is_zero()
            && self.grant.claim.lease == request.terms.lease
            && self.grant.claim.confirmed >= request.terms.confirmed
            && within
            && self.grant.has_fences()
            && !self.grant.is_asked()
            && self.grant.why_lost().is_none()
    }

    /// Whether this grant and the request exclude each other.
    pub(super) fn excludes(&self, request: &Request) -> bool {
        let alone = self.mode.exclusive() || request.mode.exclusive();
        alone && self.mode.capacity() == request.mode.capacity()
    }

    /// Whether the engine would refuse the request, or let it wait, while it has this grant: a name is of one kind at a time.
    pub(super) fn hinders(&self, request: &Request) -> bool {
        self.excludes(request) || self.mode.capacity() != request.mode.capacity()
    }

    /// Whether a task of this process uses it, or its minimum hold keeps every process out. A lingering grant is not in
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
