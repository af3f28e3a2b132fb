//! A grant as this process knows it: its fences, and how long it is ours.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::claim::Claim;
use crate::clock::{Clock, Micros, micros};
use crate::engine::{Ended, Held};
use crate::fence::Fence;

/// Whether a guard may still be trusted.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let guard = client.mutex("x").lock().await?;
/// assert_eq!(guard.state(), leasehold::State::Valid);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Renewals get through.
    Valid,
    /// Renewals are failing; the lease has not ended yet. Finish quickly or stop.
    Unsure,
    /// The lease ended, or the grant was taken away. Never taken back.
    Lost,
}

/// Who wants to know when something about a grant changed.
pub(crate) trait Home: Send + Sync {
    /// The grant is wanted, lost, or its parking time is over: look at it again.
    fn look(&self, grant: &Arc<Grant>);
}

/// The engine's yes to one claim, shared by all turns that use it.
pub(crate) struct Grant {
    pub(crate) claim: Claim,
    /// When it was granted, or shortly before.
    pub(super) since: Micros,
    clock: Clock,
    first: Fence,
    block: u32,
    turns: AtomicU32,
    wanted: AtomicBool,
    until: AtomicU64,
    unsure: AtomicBool,
    lost: OnceLock<Ended>,
    // Made only when somebody asks: most guards are released before anybody does.
    token: OnceLock<CancellationToken>,
    /// Cancelled when somebody asks for the lock to be given up.
    asked: OnceLock<CancellationToken>,
    /// How long the engine keeps it after the last word it heard.
    pub(crate) kept: Duration,
}

impl Grant {
    pub(crate) fn new(
        claim: Claim,
        held: Held,
        kept: Duration,
        valid: Range<Micros>,
        clock: &Clock,
    ) -> Self {
        Self {
            claim,
            since: valid.start,
            clock: clock.clone(),
            first: held.fence,
            block: held.block,
            turns: AtomicU32::new(0),
            wanted: AtomicBool::new(held.wanted),
            until: AtomicU64::new(valid.end),
            unsure: AtomicBool::new(false),
            lost: OnceLock::new(),
            token: OnceLock::new(),
            asked: OnceLock::new(),
            kept,
        }
    }

    /// Its claim, to be shared.
    pub(super) fn claim(&self) -> Arc<Claim> {
        Arc::new(self.claim.clone())
    }

    /// The fence of the next turn, while there are any. Asked for under the lock of its home: by one at a time.
    pub(crate) fn next_fence(&self) -> Option<Fence> {
        let turn = self.turns.load(Ordering::Relaxed);
        if turn >= self.block {
            return None;
        }
        self.turns.store(turn + 1, Ordering::Release);
        Some(Fence::new(self.first.get() + u64::from(turn)))
    }

    /// How many turns it has served.
    pub(crate) fn turns(&self) -> u32 {
        self.turns.load(Ordering::Acquire)
    }

    pub(crate) fn has_fences(&self) -> bool {
        self.turns() < self.block
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Whether somebody else waits; says what it was before.
    pub(crate) fn set_wanted(&self, wanted: bool) -> bool {
        self.wanted.swap(wanted, Ordering::AcqRel)
    }

    /// Cancelled once somebody has asked for the lock.
    pub(crate) fn asked(&self) -> &CancellationToken {
        self.asked.get_or_init(CancellationToken::new)
    }

    pub(crate) fn is_asked(&self) -> bool {
        let asked = self.asked.get();
        asked.is_some_and(CancellationToken::is_cancelled)
    }

    /// Whether the engine speaks of this grant and not of a later one of the same claim.
    pub(crate) fn is(&self, held: &Held) -> bool {
        self.first == held.fence
    }

    pub(crate) fn set_unsure(&self, unsure: bool) {
        self.unsure.store(unsure, Ordering::Release);
    }

    /// The end of validity on our own clock.
    pub(crate) fn until(&self) -> Micros {
        self.until.load(Ordering::Acquire)
    }

    /// A renewal got through. Does nothing for a grant that has already ended: a loss is never taken back.
    pub(crate) fn extend(&self, until: Micros) {
        if self.state() != State::Lost {
            let _ = self.until.fetch_max(until, Ordering::AcqRel);
        }
    }

    /// Tells everybody that it is lost, once.
    pub(crate) fn lose(&self, why: Ended) {
        if self.lost.set(why).is_ok()
            && let Some(token) = self.token.get()
        {
            token.cancel();
        }
    }

    /// Looks at the clock: the lease ends whether or not anybody ran to notice.
    pub(crate) fn state(&self) -> State {
        if self.lost.get().is_some() {
            return State::Lost;
        }
        if self.clock.now() >= self.until() {
            self.lose(Ended::Expired);
            return State::Lost;
        }
        match self.unsure.load(Ordering::Acquire) {
            true => State::Unsure,
            false => State::Valid,
        }
    }

    pub(crate) fn why_lost(&self) -> Option<&Ended> {
        self.lost.get()
    }

    /// Cancelled when the grant is lost, also if that was before the token was made.
    pub(crate) fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        if self.state() == State::Lost {
            token.cancel();
        }
        token
    }

    /// Waits until it is lost, by the clock too: the runtime that renews it may stand still or be gone.
    pub(crate) async fn lost(&self) {
        // Tokio's timers stand still in suspend, so no sleep is long.
        const LONGEST: Micros = 60_000_000;
        let token = self.token();
        while self.state() != State::Lost {
            let wake = self.until().min(self.clock.now() + LONGEST);
            tokio::select! {
                () = token.cancelled() => {}
                () = self.clock.sleep_until(wake) => {}
            }
        }
    }

    pub(crate) fn deadline(&self) -> std::time::Instant {
        self.clock.instant_of(self.until())
    }

    pub(crate) fn remaining(&self) -> Duration {
        match self.state() {
            State::Lost => Duration::ZERO,
            _ => Duration::from_micros(self.until().saturating_sub(self.clock.now())),
        }
    }

    /// How long it has been held, or a little longer.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_micros(self.clock.now().saturating_sub(self.since))
    }
}

/// What is taken off a lease on our side, so that a loss is told before the engine lets anybody else in: clocks
/// that run apart by up to 2 %, and the time it takes to tell.
pub(crate) fn validity(sent: Micros, lease: Duration) -> Micros {
    let lease = micros(lease);
    let margin = (lease / 50 + 5_000).min(lease / 4);
    sent.saturating_add(lease - margin)
}
