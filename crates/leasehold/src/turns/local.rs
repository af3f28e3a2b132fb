//! The line of one name inside this process.

use std::sync::Arc;

use super::ask::Ask;
use super::state::{Active, Parked, State, Wake, Wakes};
use super::turn::{End, Front, Turn};
use super::{Bound, Registry};
use crate::claim::{Claim, Mode};
use crate::clock::{Micros, micros};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::name::Name;
use crate::session::{Grant, Keeper, State as Validity};
use crate::sync::Shared;

/// The line of one name inside this process.
pub(crate) struct Local {
    name: Name,
    keeper: Arc<Keeper>,
    pub(super) bound: Bound,
    registry: Arc<Registry>,
    state: Shared<State>,
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
    ) -> Arc<Self> {
        Arc::new(Self {
            name,
            keeper,
            bound,
            registry,
            state: Shared::default(),
        })
    }

    pub(crate) fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
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
            Wake::Front(front) => {
                let granted = self.ask_engine(ask).await?;
                Ok(granted.and_then(|grant| front.granted(ask, grant)))
            }
        }
    }

    fn begin(self: &Arc<Self>, ask: &Ask) -> Result<Start> {
        let mut state = self.state.lock();
        if ask.reentrant {
            if let Some(turn) = state.reenter(self, ask) {
                return Ok(Start::Turn(turn));
            }
            self.refuse_upgrade(&state, ask)?;
        } else if ask.waits {
            self.warn_if_waiting_for_itself(&state, ask);
        }
        if ask.strict {
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
        if state.actives.is_empty() && state.queue.is_empty() && !state.front {
            state.front = true;
            return Ok(Start::Front(Front::new(self)));
        }
        let (ticket, told) = state.join(ask.clone());
        let mut wakes = Wakes::new();
        state.advance(self, &mut wakes);
        drop(state);
        send(wakes);
        Ok(Start::Wait(ticket, told))
    }

    fn ask_engine(&self, ask: &Ask) -> impl Future<Output = Result<Option<Arc<Grant>>>> {
        let claim = Claim {
            waits: ask.waits,
            ..Claim::new(self.name.clone(), ask.mode, ask.lease)
        };
        self.keeper.ask(claim, ask.keep_alive)
    }

    /// A new grant, with its first turn.
    pub(super) fn enter(self: Arc<Self>, ask: &Ask, grant: Arc<Grant>, was_front: bool) -> Turn {
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        let fence = state.add(&self, grant.clone(), ask);
        let fence = fence.expect("a new grant has a fence");
        if was_front {
            state.front = false;
        }
        state.advance(&self, &mut wakes);
        drop(state);
        send(wakes);
        Turn::new(self, grant, fence)
    }

    /// The task at the engine gave up; the next one may go.
    pub(super) fn leave_front(self: &Arc<Self>) {
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        state.front = false;
        state.advance(self, &mut wakes);
        drop(state);
        send(wakes);
    }

    /// A turn ended: hand the grant over, keep it, or give it back. Looks at the clock, so that the grant knows
    /// afterwards whether it is lost.
    pub(super) fn finish(self: &Arc<Self>, grant: &Arc<Grant>, fence: crate::fence::Fence) -> End {
        let lost = grant.state() == Validity::Lost;
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        let Some(index) = state.find(grant) else {
            return End::Kept;
        };
        let users = &mut state.actives[index].users;
        if let Some(at) = users.iter().position(|user| user.fence == fence) {
            users[at].depth -= 1;
            if users[at].depth > 0 {
                return End::Kept;
            }
            let _ = users.swap_remove(at);
        }
        let end = self.after_turn(&mut state, index, lost, &mut wakes);
        drop(state);
        send(wakes);
        end
    }

    /// Decides what happens to a grant that may have no user left.
    fn after_turn(
        self: &Arc<Self>,
        state: &mut State,
        index: usize,
        lost: bool,
        wakes: &mut Wakes,
    ) -> End {
        let active = &mut state.actives[index];
        if active.users.is_empty()
            && !lost
            && let Some(until) = active.at_least
            && self.keeper.clock().now() < until
        {
            self.park(active, until, false);
            return End::Kept;
        }
        state.advance(self, wakes);
        let active = &mut state.actives[index];
        if !active.users.is_empty() {
            return End::Kept;
        }
        let grant = &active.grant;
        if !lost
            && !grant.is_wanted()
            && !grant.is_asked()
            && grant.has_fences()
            && !active.linger.is_zero()
        {
            let now = self.keeper.clock().now();
            self.park(active, now.saturating_add(micros(active.linger)), true);
            return End::Kept;
        }
        state.forget(index);
        // Whoever waited for this grant now goes to the engine.
        state.advance(self, wakes);
        End::GiveBack
    }

    /// Keeps a grant without a user: for nobody while its minimum lasts, else for this process while it lingers.
    fn park(self: &Arc<Self>, active: &mut Active, until: Micros, reusable: bool) {
        active.parked = Some(Parked {
            until,
            _home: self.clone(),
            reusable,
        });
        self.keeper.park(&active.grant, Some(until));
    }

    /// How often the user of a turn has entered it.
    pub(super) fn depth(&self, grant: &Arc<Grant>, fence: crate::fence::Fence) -> u32 {
        let mut state = self.state.lock();
        let Some(index) = state.find(grant) else {
            return 0;
        };
        let mut users = state.actives[index].users.iter();
        let user = users.find(|user| user.fence == fence);
        user.map_or(0, |user| user.depth)
    }

    /// A writer became a reader: readers of this process may join it.
    pub(super) fn now_read(self: &Arc<Self>, grant: &Arc<Grant>) {
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        if let Some(index) = state.find(grant) {
            state.actives[index].mode = Mode::Read;
        }
        state.advance(self, &mut wakes);
        drop(state);
        send(wakes);
    }

    /// Gives back what only lingers.
    pub(super) fn give_up_idle(self: &Arc<Self>) {
        let idle = |a: &Active| {
            a.users.is_empty() && a.parked.as_ref().is_some_and(|parked| parked.reusable)
        };
        let grants: Vec<_> = {
            let mut state = self.state.lock();
            let grants = state
                .actives
                .iter()
                .filter(|a| idle(a))
                .map(|a| a.grant.clone())
                .collect();
            state.actives.retain(|a| !idle(a));
            grants
        };
        for grant in grants {
            self.keeper.discard(&grant);
        }
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

impl Local {
    /// Something about a grant changed: hands it on or gives it back, if that is due.
    pub(super) fn look(self: &Arc<Self>, grant: &Arc<Grant>) {
        let mut wakes = Wakes::new();
        let mut state = self.state.lock();
        let Some(index) = state.find(grant) else {
            return;
        };
        let active = &state.actives[index];
        let over = active.parked.as_ref().is_some_and(|parked| {
            let done = parked.until <= self.keeper.clock().now();
            let wanted = grant.is_wanted() || grant.is_asked();
            done || grant.state() == Validity::Lost || (parked.reusable && wanted)
        });
        if over && active.users.is_empty() {
            state.forget(index);
        }
        state.advance(self, &mut wakes);
        drop(state);
        if over {
            self.keeper.discard(grant);
        }
        send(wakes);
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

/// Only without the lock: a wake that nobody takes is dropped here, and its `Drop` locks again.
fn send(wakes: Wakes) {
    if wakes.is_empty() {
        return;
    }
    for (tell, wake) in wakes {
        drop(tell.send(wake));
    }
}
