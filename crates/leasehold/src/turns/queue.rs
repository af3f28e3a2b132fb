//! The queue of one name inside this process.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::request::Request;
use super::state::{Active, State, Wake, Wakes, reenter};
use super::turn::{EngineTurn, Turn};
use super::{Queues, Turns};
use crate::claim::{Claim, Mode};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::name::Name;
use crate::session::{Grant, Manager};
use crate::sync::Shared;

/// The tasks of this process that want one name, and the grants that it has.
pub(crate) struct Queue {
    name: Name,
    pub(super) manager: Arc<Manager>,
    queues: Arc<Queues>,
    /// Alive while a client or a handle is: without one a grant need not linger.
    pub(super) turns: Weak<Turns>,
    pub(super) state: Shared<State>,
}

/// How a request begins.
enum Start {
    Turn(Turn),
    /// To the engine, in the name of this process.
    Engine(EngineTurn),
    /// To the engine, past the queue.
    Alone,
    Wait(u64, tokio::sync::oneshot::Receiver<Wake>),
    Busy,
}

impl Queue {
    pub(super) fn new(name: Name, turns: &Arc<Turns>) -> Arc<Self> {
        Arc::new(Self {
            name,
            manager: turns.manager.clone(),
            queues: turns.queues.clone(),
            turns: Arc::downgrade(turns),
            state: Shared::default(),
        })
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    /// How many tasks of this process use the name or wait for it, and whether another process is known to want it.
    pub(crate) fn contention(&self) -> usize {
        let state = self.state.lock();
        let wanted = |active: &Active| usize::from(active.grant.is_wanted());
        let used = |active: &Active| active.users.len() + wanted(active);
        let actives: usize = state.actives.iter().map(used).sum();
        actives + state.waiting.len() + usize::from(state.at_engine.is_some())
    }

    pub(crate) fn manager(&self) -> &Manager {
        &self.manager
    }

    pub(crate) fn now(&self) -> Micros {
        self.manager.clock().now()
    }

    /// Waits for a turn; none if the request was a try and there was no room.
    pub(crate) async fn take(self: &Arc<Self>, request: &Request) -> Result<Option<Turn>> {
        let wake = match self.begin(request)? {
            Start::Turn(turn) => return Ok(Some(turn)),
            Start::Busy => return Ok(None),
            Start::Alone => {
                let granted = self.acquire(request).await?;
                return Ok(granted.map(|grant| self.clone().enter(request, grant, false)));
            }
            Start::Engine(front) => Wake::Engine(front),
            Start::Wait(ticket, told) => {
                let place = InLine(self, ticket);
                let wake = told
                    .await
                    .map_err(|_| Error::closed(Step::Turn).of(&self.name))?;
                std::mem::forget(place);
                wake
            }
        };
        match wake {
            Wake::Turn(turn) => Ok(Some(turn)),
            Wake::Failed(error) => Err(error),
            Wake::Engine(front) => match self.acquire(request).await {
                Ok(granted) => Ok(granted.and_then(|grant| front.granted(request, grant))),
                Err(error) => {
                    front.failed(&error, request.terms.lease);
                    Err(error)
                }
            },
        }
    }

    fn begin(self: &Arc<Self>, request: &Request) -> Result<Start> {
        let mut state = self.state.lock();
        if request.is_reentrant() {
            if let Some(turn) = reenter(&mut state.actives, self, request) {
                return Ok(Start::Turn(turn));
            }
            self.refuse_upgrade(&state, request)?;
        } else if request.waits {
            self.warn_if_waiting_for_itself(&state, request);
        }
        // Looked at under the lock: after a shutdown has told the waiting tasks no task joins them.
        if self.manager.is_closing() {
            return Err(Error::closed(Step::Turn).of(&self.name));
        }
        if request.terms.strict {
            return Ok(Start::Alone);
        }
        if let Some(turn) = state.serve(self, request) {
            return Ok(Start::Turn(turn));
        }
        if !request.waits {
            return Ok(if state.surely_busy(request) {
                Start::Busy
            } else {
                Start::Alone
            });
        }
        if state.actives.is_empty() && state.waiting.is_empty() && state.at_engine.is_none() {
            return Ok(Start::Engine(state.go(self, request)));
        }
        let (ticket, told) = state.join(request.clone());
        let mut wakes = Wakes::new();
        state.advance(self, &mut wakes);
        drop(state);
        send(wakes);
        Ok(Start::Wait(ticket, told))
    }

    /// Asks the engine. A lingering grant that would be in the way is given back first.
    async fn acquire(self: &Arc<Self>, request: &Request) -> Result<Option<Arc<Grant>>> {
        loop {
            let idle = self
                .state
                .lock()
                .take_idle(|active| active.hinders(request));
            let Some(grant) = idle else { break };
            if let Err(error) = self.manager.release(&grant).await {
                tracing::debug!(%error, "giving back what lingers");
            }
        }
        let claim = Claim {
            waits: request.waits,
            confirmed: request.terms.confirmed,
            ..Claim::new(self.name.clone(), request.mode, request.terms.lease)
        };
        self.manager
            .acquire(claim, request.terms.keep_alive, &request.confirmed)
            .await
    }

    /// The error of a wait that ran out of time: that the name is busy, if that was seen during the wait, and
    /// otherwise that the engine did not say.
    pub(crate) fn out_of_time(&self, request: &Request) -> Result<()> {
        let busy = request.confirmed.get() || self.state.lock().seen_busy(request.since);
        if busy {
            return Ok(());
        }
        let what = "the engine did not say within the time given whether the name is free";
        let error = Error::new(ErrorKind::TimedOut, Step::Claim, what);
        Err(error.of(&self.name).perhaps())
    }

    /// A new grant, with its first turn.
    pub(super) fn enter(
        self: Arc<Self>,
        request: &Request,
        grant: Arc<Grant>,
        was_at_engine: bool,
    ) -> Turn {
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        let fence = state.add(&self, grant.clone(), request);
        let fence = fence.expect("a new grant has a fence");
        if was_at_engine {
            state.at_engine = None;
        }
        state.advance(&self, &mut wakes);
        drop(state);
        send(wakes);
        Turn::new(self, grant, fence)
    }

    /// The task at the engine gave up; the next one may go.
    pub(super) fn leave_engine(self: &Arc<Self>) {
        let mut wakes = Wakes::new();
        let now = self.now();
        let mut state = self.state.lock();
        if state.at_engine.take().is_some_and(|front| front.get()) {
            state.busy_until = now;
        }
        state.advance(self, &mut wakes);
        drop(state);
        send(wakes);
    }

    /// The task at the engine failed. The tasks that wait here would meet the same error, one after the other: they fail
    /// now. No answer in time is an answer only to those that would not have waited longer.
    pub(super) fn fail_engine(self: &Arc<Self>, error: &Error, lease: Duration) {
        let lease = match error.kind() {
            ErrorKind::TimedOut => lease,
            _ => Duration::MAX,
        };
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        state.at_engine = None;
        state.fail(error, lease, &mut wakes);
        state.advance(self, &mut wakes);
        drop(state);
        send(wakes);
    }

    /// The client is being shut down: waiting tasks are told, and what only lingers is given back.
    pub(super) fn close(self: &Arc<Self>) {
        let mut wakes = Wakes::new();
        let closed = Error::closed(Step::Turn).of(&self.name);
        self.state.lock().fail(&closed, Duration::MAX, &mut wakes);
        send(wakes);
        self.release_idle();
    }

    fn refuse_upgrade(&self, state: &State, request: &Request) -> Result<()> {
        match state.user(request.who) {
            Some((active, user)) if active.mode == Mode::Read && request.mode == Mode::Write => {
                let what = format!(
                    "this owner has a read lock (taken at {}) and would wait for itself: release it before asking to write",
                    user.place
                );
                Err(Error::new(ErrorKind::Invalid, Step::Turn, what).of(&self.name))
            }
            _ => Ok(()),
        }
    }

    fn warn_if_waiting_for_itself(&self, state: &State, request: &Request) {
        if let Some((active, user)) = state.user(request.who)
            && (active.mode.exclusive() || request.mode.exclusive())
        {
            tracing::warn!(
                name = %self.name,
                held_at = %user.place,
                waits_at = %request.place,
                "a task waits for a name it holds itself; use .reentrant() if that is meant"
            );
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.queues.forget(&self.name);
    }
}

/// A place in the queue; dropping it gives the place up. A wake that was already sent passes itself on.
struct InLine<'a>(&'a Arc<Queue>, u64);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        let mut wakes = Wakes::new();
        let mut state = self.0.state.lock();
        state.leave(self.1);
        state.advance(self.0, &mut wakes);
        drop(state);
        send(wakes);
    }
}

/// Only without the lock: a wake whose task is gone is dropped here, and its `Drop` locks again.
pub(super) fn send(wakes: Wakes) {
    for (tell, wake) in wakes {
        drop(tell.send(wake));
    }
}
