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
}
