//! The line of one name inside this process.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::ask::Ask;
use super::state::{State, Wake, Wakes, reenter};
use super::turn::{Front, Turn};
use super::{Bound, Registry, Turns};
use crate::claim::{Claim, Mode};
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::name::Name;
use crate::session::{Grant, Keeper};
use crate::sync::Shared;

/// The line of one name inside this process.
pub(crate) struct Local {
    name: Name,
    pub(super) keeper: Arc<Keeper>,
    pub(super) bound: Bound,
    registry: Arc<Registry>,
    /// Alive while a client or a handle is: without one a grant need not linger.
    pub(super) turns: Weak<Turns>,
    pub(super) state: Shared<State>,
}

/// How an ask begins.
enum Start {
    Turn(Turn),
    /// To the engine, in the name of this process.
    Front(Front),
    /// To the engine, past the local line.
    Alone,
    Wait(u64, tokio::sync::oneshot::Receiver<Wake>),
    Busy,
}

impl Local {
    pub(super) fn new(
        name: Name,
        keeper: Arc<Keeper>,
        bound: Bound,
        registry: Arc<Registry>,
        turns: Weak<Turns>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            keeper,
            bound,
            registry,
            turns,
            state: Shared::default(),
        })
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }

    pub(crate) fn now(&self) -> Micros {
        self.keeper.clock().now()
    }

    /// Waits for a turn; none if the ask was a try and there was no room.
    pub(crate) async fn take(self: &Arc<Self>, ask: &Ask) -> Result<Option<Turn>> {
        let wake = match self.begin(ask)? {
            Start::Turn(turn) => return Ok(Some(turn)),
            Start::Busy => return Ok(None),
            Start::Alone => {
                let granted = self.ask_engine(ask).await?;
                return Ok(granted.map(|grant| self.clone().enter(ask, grant, false)));
            }
            Start::Front(front) => Wake::Front(front),
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
            Wake::Front(front) => match self.ask_engine(ask).await {
                Ok(granted) => Ok(granted.and_then(|grant| front.granted(ask, grant))),
                Err(error) => {
                    front.failed(&error, ask.terms.lease);
                    Err(error)
                }
            },
        }
    }

    fn begin(self: &Arc<Self>, ask: &Ask) -> Result<Start> {
        let mut state = self.state.lock();
        if ask.is_reentrant() {
            if let Some(turn) = reenter(&mut state.actives, self, ask) {
                return Ok(Start::Turn(turn));
            }
            self.refuse_upgrade(&state, ask)?;
        } else if ask.waits {
            self.warn_if_waiting_for_itself(&state, ask);
        }
        // Looked at under the lock: after a shutdown has told the waiting tasks no task joins them.
        if self.keeper.is_closing() {
            return Err(Error::closed(Step::Turn).of(&self.name));
        }
        if ask.terms.strict {
            return Ok(Start::Alone);
        }
        if let Some(turn) = state.serve(self, ask) {
            return Ok(Start::Turn(turn));
        }
        if !ask.waits {
            return Ok(if state.surely_busy(ask) {
                Start::Busy
            } else {
                Start::Alone
            });
        }
        if state.actives.is_empty() && state.queue.is_empty() && state.front.is_none() {
            return Ok(Start::Front(state.go(self, ask)));
        }
        let (ticket, told) = state.join(ask.clone());
        let mut wakes = Wakes::new();
        state.advance(self, &mut wakes);
        drop(state);
        send(wakes);
        Ok(Start::Wait(ticket, told))
    }

    /// Asks the engine. What only lingers here and would be in the way is given back first.
    async fn ask_engine(self: &Arc<Self>, ask: &Ask) -> Result<Option<Arc<Grant>>> {
        loop {
            let idle = self.state.lock().take_idle(|active| active.excludes(ask));
            let Some(grant) = idle else { break };
            if let Err(error) = self.keeper.give_back(&grant).await {
                tracing::debug!(%error, "giving back what lingers");
            }
        }
        let claim = Claim {
            waits: ask.waits,
            ..Claim::new(self.name.clone(), ask.mode, ask.terms.lease)
        };
        self.keeper
            .ask(claim, ask.terms.keep_alive, &ask.confirmed)
            .await
    }

    /// What a wait that ran out of time is told: that the name is busy, if that was seen during the wait, and
    /// otherwise that the engine did not say.
    pub(crate) fn out_of_time(&self, ask: &Ask) -> Result<()> {
        let busy = ask.confirmed.get() || self.state.lock().seen_busy(ask.since);
        if busy {
            return Ok(());
        }
        let what = "the engine did not say within the time given whether the name is free";
        let error = Error::new(ErrorKind::TimedOut, Step::Claim, what);
        Err(error.of(&self.name).perhaps())
    }

    /// A new grant, with its first turn.
    pub(super) fn enter(self: Arc<Self>, ask: &Ask, grant: Arc<Grant>, was_front: bool) -> Turn {
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        let fence = state.add(&self, grant.clone(), ask);
        let fence = fence.expect("a new grant has a fence");
        if was_front {
            state.front = None;
        }
        state.advance(&self, &mut wakes);
        drop(state);
        send(wakes);
        Turn::new(self, grant, fence)
    }

    /// The task at the engine gave up; the next one may go.
    pub(super) fn leave_front(self: &Arc<Self>) {
        let mut wakes = Wakes::new();
        let now = self.now();
        let mut state = self.state.lock();
        if state.front.take().is_some_and(|front| front.get()) {
            state.busy_until = now;
        }
        state.advance(self, &mut wakes);
        drop(state);
        send(wakes);
    }

    /// The task at the engine failed. The tasks that wait here would meet the same error, one after the other: they fail
    /// now. No answer in time is an answer only to those that would not have waited longer.
    pub(super) fn fail_front(self: &Arc<Self>, error: &Error, lease: Duration) {
        let lease = match error.kind() {
            ErrorKind::TimedOut => lease,
            _ => Duration::MAX,
        };
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        state.front = None;
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
        self.give_up_idle();
    }

    fn refuse_upgrade(&self, state: &State, ask: &Ask) -> Result<()> {
        match state.user(ask.who) {
            Some((active, user)) if active.mode == Mode::Read && ask.mode == Mode::Write => {
                let what = format!(
                    "this owner has a read lock (taken at {}) and would wait for itself: release it before asking to write",
                    user.place
                );
                Err(Error::new(ErrorKind::Invalid, Step::Turn, what).of(&self.name))
            }
            _ => Ok(()),
        }
    }

    fn warn_if_waiting_for_itself(&self, state: &State, ask: &Ask) {
        if let Some((active, user)) = state.user(ask.who)
            && (active.mode.exclusive() || ask.mode.exclusive())
        {
            tracing::warn!(
                name = %self.name,
                held_at = %user.place,
                waits_at = %ask.place,
                "a task waits for a name it holds itself; use .reentrant() if that is meant"
            );
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.registry.forget(&self.name);
    }
}

/// A place in the local line; dropping it gives the place up. A wake that was already sent passes itself on.
struct InLine<'a>(&'a Arc<Local>, u64);

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
