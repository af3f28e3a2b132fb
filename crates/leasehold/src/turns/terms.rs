//! On which terms a name is asked for.

use std::time::Duration;

use super::TurnBound;
use super::owner::Owner;
use crate::error::{Error, ErrorKind, Result, Step};

/// Shorter leases leave no room for a renewal, longer ones block for a day after a crash.
const LEASE: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_secs(24 * 3600);

/// The terms of one lock handle.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) keep_alive: bool,
    pub(crate) min_hold: Duration,
    pub(crate) linger: Duration,
    pub(crate) strict: bool,
    pub(crate) bound: TurnBound,
    pub(crate) reentrant: Reentrant,
    /// Whether only the engine's answer is a grant: for locks whose fences a store remembers.
    pub(crate) confirmed: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Reentrant {
    #[default]
    No,
    /// The task or thread that asks.
    Runner,
    Owner(Owner),
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            keep_alive: true,
            min_hold: Duration::ZERO,
            linger: Duration::ZERO,
            strict: false,
            bound: TurnBound::default(),
            reentrant: Reentrant::No,
            confirmed: false,
        }
    }
}

impl Terms {
    pub(crate) fn check(&self) -> Result<()> {
        let (lease, min_hold) = (self.lease, self.min_hold);
        let what = if !LEASE.contains(&lease) {
            format!("a lease of {lease:?} was asked for; leases are from 20 ms to 24 h")
        } else if min_hold > lease && !self.keep_alive {
            format!(
                "a minimum hold of {min_hold:?} is longer than the lease of {lease:?}, which is not renewed: \
                 ask for a longer lease, or keep it alive"
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Invalid, Step::Claim, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Terms)) -> bool {
        let mut terms = Terms::default();
        change(&mut terms);
        terms.check().is_err()
    }

    #[test]
    fn leases_have_bounds_and_a_fixed_one_covers_its_minimum() {
        let (shortest, day) = (Duration::from_millis(20), Duration::from_secs(86_400));
        let moment = Duration::from_micros(1);
        assert!(!refused(|terms| terms.lease = shortest) && !refused(|terms| terms.lease = day));
        assert!(refused(|terms| terms.lease = shortest - moment));
        assert!(refused(|terms| terms.lease = day + moment));
        let fixed = |min_hold| {
            move |terms: &mut Terms| (terms.keep_alive, terms.min_hold) = (false, min_hold)
        };
        assert!(!refused(fixed(Terms::default().lease)));
        assert!(refused(fixed(Terms::default().lease + moment)));
        assert!(!refused(|terms| terms.min_hold = terms.lease + moment));
    }
}
