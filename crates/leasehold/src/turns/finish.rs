//! The next use of a grant when a turn on it ends, or something about it changes.

use std::sync::Arc;

use super::queue::{Queue, send};
use super::state::{Active, Idle, State, Wakes};
use super::turn::End;
use crate::claim::Mode;
use crate::clock::micros;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::session::{Grant, GuardState as Validity, Parked};

impl Queue {
    /// A turn ended: hand the grant over, keep it, or give it back. Looks at the clock, so that the grant knows
    /// afterwards whether it is lost.
    pub(super) fn finish(self: &Arc<Self>, grant: &Arc<Grant>, fence: Fence) -> End {
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
        let now = self.now();
        let active = &mut state.actives[index];
        if active.users.is_empty()
            && self.manager.has(&active.grant)
            && let Some(until) = active.at_least
            && now < until
        {
            let reusable = false;
            self.park(active, Parked { until, reusable });
            return End::Kept;
        }
        state.advance(self, wakes);
        let active = &mut state.actives[index];
        if !active.users.is_empty() {
            return End::Kept;
        }
        if !lost && self.may_linger(active) {
            let (until, reusable) = (now.saturating_add(micros(active.linger)), true);
            self.park(active, Parked { until, reusable });
            return End::Kept;
        }
        state.forget(index, now);
        // The task that waited for this grant now goes to the engine.
        state.advance(self, wakes);
        End::Release
    }

    /// Whether a grant without a user is kept for this process.
    fn may_linger(&self, active: &Active) -> bool {
        let grant = &active.grant;
        !active.linger.is_zero()
            && !grant.is_wanted()
            && !grant.is_asked()
            && grant.has_fences()
            && !self.manager.is_closing()
            && self.turns.strong_count() > 0
    }

    fn park(self: &Arc<Self>, active: &mut Active, kept: Parked) {
        active.idle = Some(Idle {
            kept,
            _queue: self.clone(),
        });
        self.manager.park(&active.grant, Some(kept));
    }

    /// Gives back what only lingers.
    pub(super) fn release_idle(&self) {
        // One at a time: the lock is not held while the grant is given back.
        while let Some(grant) = {
            let mut state = self.state.lock();
            state.take_idle(|_| true)
        } {
            self.manager.discard(&grant);
        }
    }

    /// Something about a grant changed: hands it on or gives it back, if that is due.
    pub(super) fn look(self: &Arc<Self>, grant: &Arc<Grant>) {
        let mut wakes = Wakes::new();
        let now = self.now();
        let mut state = self.state.lock();
        let Some(index) = state.find(grant) else {
            return;
        };
        let active = &state.actives[index];
        let over = active.users.is_empty()
            && active.idle.as_ref().is_some_and(|idle| {
                let wanted = grant.is_wanted() || grant.is_asked();
                let gone = !self.manager.has(grant);
                gone || idle.kept.until <= now || (idle.kept.reusable && wanted)
            });
        if over {
            state.forget(index, now);
        }
        state.advance(self, &mut wakes);
        drop(state);
        if over {
            self.manager.discard(grant);
        }
        send(wakes);
    }

    /// A writer goes on as a reader. Until the engine has answered, no other task gets a turn at the grant, and the owner
    /// re-enters it only to read.
    pub(super) async fn downgrade(
        self: &Arc<Self>,
        grant: &Arc<Grant>,
        fence: Fence,
    ) -> Result<()> {
        self.begin_downgrade(grant, fence)?;
        let mut settling = Settling(self, grant, false);
        self.manager.downgrade(grant, Mode::Read).await?;
        settling.2 = true;
        Ok(())
    }

    fn begin_downgrade(&self, grant: &Arc<Grant>, fence: Fence) -> Result<()> {
        let mut state = self.state.lock();
        let Some(index) = state.find(grant) else {
            return Ok(());
        };
        let active = &mut state.actives[index];
        let user = active.users.iter().find(|user| user.fence == fence);
        if user.is_some_and(|user| user.depth > 1) {
            let what = "the write lock was entered more than once; release the inner guards first";
            let error = Error::new(ErrorKind::Invalid, Step::Hold, what);
            return Err(error.of(self.name()));
        }
        active.mode = Mode::Read;
        active.settling = true;
        Ok(())
    }
}

/// A downgrade under way. Dropped before the engine's yes, it leaves a grant of which only the engine knows the mode:
/// no other task gets a turn at it, and it is given back when its guard goes.
struct Settling<'a>(&'a Arc<Queue>, &'a Arc<Grant>, bool);

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let Self(queue, grant, done) = *self;
        let mut wakes = Wakes::new();
        let mut state = queue.state.lock();
        if let Some(index) = state.find(grant) {
            let active = &mut state.actives[index];
            active.settling = false;
            if !done {
                active.keep_to_itself();
            }
        }
        state.advance(queue, &mut wakes);
        drop(state);
        send(wakes);
    }
}
