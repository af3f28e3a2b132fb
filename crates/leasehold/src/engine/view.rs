//! The answer of `inspect`.

use std::time::{Duration, SystemTime};

use crate::claim::Mode;
use crate::fence::Fence;
use crate::identity::Identity;
use crate::name::Name;

/// Which lines to look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Only this name; every name in use otherwise.
    pub name: Option<Name>,
}

impl Query {
    /// Every line in use.
    pub const fn all() -> Self {
        Self { name: None }
    }

    /// The line of one name.
    pub const fn name(name: Name) -> Self {
        Self { name: Some(name) }
    }
}

/// One line as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineView {
    /// The name of the lock.
    pub name: Name,
    /// The holders, in order of arrival.
    pub holders: Vec<ClaimView>,
    /// The waiters, in order of arrival.
    pub waiters: Vec<ClaimView>,
}

impl LineView {
    /// A line of these claims; those with a fence hold.
    pub fn new(name: Name, claims: impl IntoIterator<Item = ClaimView>) -> Self {
        let (holders, waiters) = claims.into_iter().partition(|claim| claim.fence.is_some());
        Self {
            name,
            holders,
            waiters,
        }
    }
}

/// How far two readings of one clock may be apart that belong to one moment.
const CLOSE: Duration = Duration::from_secs(1);

/// One claim as it was at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimView {
    /// The fence, if it holds.
    pub fence: Option<Fence>,
    /// How the name is claimed.
    pub mode: Mode,
    /// The process that claims, if it is known.
    pub who: Option<Identity>,
    /// When it joined the line.
    pub since: SystemTime,
    /// Since when it holds, if the engine knows: those that order nodes on a server know only when the node was made.
    pub held: Option<SystemTime>,
    /// When it ends unless it is renewed.
    pub until: SystemTime,
    /// How long the engine keeps it after its session's last word, if that is known.
    pub lease: Option<Duration>,
}

impl ClaimView {
    /// A claim as an engine stored it.
    pub const fn new(
        fence: Option<Fence>,
        mode: Mode,
        who: Option<Identity>,
        since: SystemTime,
        until: SystemTime,
    ) -> Self {
        Self {
            fence,
            mode,
            who,
            since,
            held: None,
            until,
            lease: None,
        }
    }

    /// With the lease it has.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
        self
    }

    /// With the moment since which it holds.
    #[must_use]
    pub const fn held(mut self, held: SystemTime) -> Self {
        self.held = Some(held);
        self
    }

    /// Holds since its fence was made, where fences are microseconds of the clock that the other times are of. A fence that
    /// was pushed past that clock, by a counter from elsewhere or a clock that was set back, tells no time.
    #[must_use]
    pub(crate) fn held_by_fence(mut self) -> Self {
        let at =
            |fence: Fence| SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(fence.get()));
        let near = self.since.checked_sub(CLOSE).unwrap_or(self.since)..=self.until;
        let told = self.fence.and_then(at).filter(|at| near.contains(at));
        self.held = told.map(|at| at.max(self.since));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_tells_since_when_only_while_it_is_a_time() {
        let at = |micros| SystemTime::UNIX_EPOCH + Duration::from_micros(micros);
        let claim = |fence: Option<u64>| {
            let fence = fence.map(Fence::new);
            let view = ClaimView::new(fence, Mode::Mutex, None, at(5_000_000), at(9_000_000));
            view.held_by_fence().held
        };
        assert_eq!(claim(Some(7_000_000)), Some(at(7_000_000)));
        assert_eq!(
            claim(Some(4_999_999)),
            Some(at(5_000_000)),
            "read a moment apart"
        );
        assert_eq!(claim(Some(256)), None, "a counter from 1");
        assert_eq!(claim(Some(9_000_001)), None, "the clock was set back");
        assert_eq!(claim(Some(u64::MAX)), None);
        assert_eq!(claim(None), None, "it waits");
    }
}
