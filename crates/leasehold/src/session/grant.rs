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
/// assert_eq!(guard.state(), leasehold::GuardState::Valid);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GuardState {
    /// Renewals get through.
    Valid,
    /// Renewals are failing; the lease has not ended yet. Finish quickly or stop.
    Unsure,
    /// The lease ended, or the grant was taken away. Never taken back.
    Lost,
}

/// Hears what changes about grants.
pub(crate) trait GrantObserver: Send + Sync {
    /// The grant is wanted, lost, or its parking time is over.
    fn grant_changed(&self, grant: &Arc<Grant>);
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
    // Made on the first call: most guards are released without one.
    token: OnceLock<CancellationToken>,
    /// Cancelled when the holder is asked to release.
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

    /// The fence of the next turn, while there are any. Asked for under the lock of its queue: by one at a time.
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

    /// Sets whether another process waits; answers what it was before.
    pub(crate) fn set_wanted(&self, wanted: bool) -> bool {
        self.wanted.swap(wanted, Ordering::AcqRel)
    }

    /// Cancelled once the holder was asked to release.
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
        if self.state() != GuardState::Lost {
            let _ = self.until.fetch_max(until, Ordering::AcqRel);
        }
    }

    /// Tells the guards that it is lost, once.
    pub(crate) fn lose(&self, why: Ended) {
        if self.lost.set(why).is_ok()
            && let Some(token) = self.token.get()
        {
            token.cancel();
        }
    }

    /// Looks at the clock: the lease ends whether or not a task ran to notice.
    pub(crate) fn state(&self) -> GuardState {
        if self.lost.get().is_some() {
            return GuardState::Lost;
        }
        if self.clock.now() >= self.until() {
            self.lose(Ended::Expired);
            return GuardState::Lost;
        }
        match self.unsure.load(Ordering::Acquire) {
            true => GuardState::Unsure,
            false => GuardState::Valid,
        }
    }

    pub(crate) fn why_lost(&self) -> Option<&Ended> {
        self.lost.get()
    }

    /// Cancelled when the grant is lost, also if that was before the token was made.
    pub(crate) fn token(&self) -> &CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new);
        if self.state() == GuardState::Lost {
            token.cancel();
        }
        token
    }

    /// Waits until it is lost, by the clock too: the runtime that renews it may stand still or be gone.
    pub(crate) async fn lost(&self) {
        // Tokio's timers stand still in suspend, so no sleep is long.
        const LONGEST: Micros = 60_000_000;
        let token = self.token();
        while self.state() != GuardState::Lost {
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
            GuardState::Lost => Duration::ZERO,
            _ => Duration::from_micros(self.until().saturating_sub(self.clock.now())),
        }
    }

    /// How long it has been held, or a little longer.
    pub(crate) fn age(&self) -> Duration {
        Duration::from_micros(self.clock.now().saturating_sub(self.since))
    }
}

/// The part of a lease that we do not use, so that a loss is told before the engine lets another holder in: clocks
/// that run apart by up to 2 %, and the time it takes to tell.
pub(crate) fn validity(sent: Micros, lease: Duration) -> Micros {
    let lease = micros(lease);
    let margin = (lease / 50 + 5_000).min(lease / 4);
    sent.saturating_add(lease - margin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Mode;
    use crate::name::Name;

    fn held(fence: u64) -> Held {
        Held {
            fence: Fence::new(fence),
            block: 2,
            wanted: false,
        }
    }

    fn grant(clock: &Clock, until: Micros) -> Grant {
        let (name, lease) = (Name::new("x").unwrap(), Duration::from_secs(1));
        let claim = Claim::new(name, Mode::Mutex, lease);
        Grant::new(claim, held(7), lease, clock.now()..until, clock)
    }

    /// Two hundredths for clocks that run apart, five milliseconds to tell, and never more than a quarter.
    #[test]
    fn validity_ends_before_the_lease_does() {
        let valid = |lease| validity(1_000, Duration::from_millis(lease)) - 1_000;
        assert_eq!([valid(10_000), valid(1_000)], [9_795_000, 975_000]);
        assert_eq!(valid(20), 15_000);
    }

    #[test]
    fn a_fence_says_whether_the_engine_speaks_of_this_grant() {
        let grant = grant(&Clock::simulated(), Micros::MAX);
        assert!(grant.is(&held(7)) && !grant.is(&held(9)));
        let fences = [grant.next_fence(), grant.next_fence(), grant.next_fence()];
        assert_eq!(fences, [Some(Fence::new(7)), Some(Fence::new(8)), None]);
    }

    #[test]
    fn a_grant_that_was_not_renewed_in_time_is_unsure_until_it_is() {
        let grant = grant(&Clock::simulated(), Micros::MAX);
        grant.set_unsure(true);
        assert_eq!(grant.state(), GuardState::Unsure);
        grant.set_unsure(false);
        assert_eq!(grant.state(), GuardState::Valid);
    }

    /// The wait sleeps at most a minute at a time, and goes on until the end.
    #[tokio::test(start_paused = true)]
    async fn a_wait_for_the_loss_lasts_until_the_loss() {
        let clock = Clock::simulated();
        let end = clock.now() + 200_000_000;
        let grant = grant(&clock, end);
        assert_eq!(grant.remaining(), Duration::from_secs(200));
        let early = tokio::time::timeout(Duration::from_secs(199), grant.lost()).await;
        assert!(early.is_err(), "told before the end");
        grant.lost().await;
        assert!((end..end + 10_000).contains(&clock.now()));
        assert_eq!(grant.remaining(), Duration::ZERO);
    }
}
