//! The operations on a line, the places in it, and its answers.

use std::time::Duration;

use crate::claim::{ClaimId, Mode, SessionId};
use crate::clock::Micros;
use crate::fence::{FENCE_BLOCK, Fence};

/// The moment of an operation, by the clocks of the engine that keeps the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Leases are counted on this clock. Operations may come a little out of its order: a caller that reads the clock
    /// and then waits for the line is late.
    pub now: Micros,
    /// Fences start above this number. The wall clock where counters may be dropped, 0 where they never are. It
    /// may step back; fences do not.
    pub floor: u64,
}

/// One request to join a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Identifies the claim.
    pub id: ClaimId,
    /// The session that made the claim.
    pub session: SessionId,
    /// Weight and capacity.
    pub mode: Mode,
    /// How long the claim lasts after each word of its session.
    pub lease: Micros,
    /// Whether to wait in line; a try does not.
    pub waits: bool,
}

/// One claim in a line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Identifies the claim.
    pub id: ClaimId,
    /// The session that made the claim.
    pub session: SessionId,
    /// How much of the capacity it takes.
    pub weight: u32,
    /// How long it lasts after each word of its session.
    pub lease: Micros,
    /// When it joined.
    pub since: Micros,
    /// When it ends: the last word of its own session plus the lease, waiting or holding. It never moves back: the
    /// session trusts every answer it got.
    pub deadline: Micros,
    /// The first fence of its block, once it holds.
    pub fence: Option<Fence>,
}

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Standing {
    /// It holds the lock.
    Held(Held),
    /// It waits.
    Waiting {
        /// How many claims are before it.
        ahead: u32,
        /// When to ask again, in case an event is lost: a claim before it may have ended by then.
        look_again: Duration,
    },
    /// A try found no room; it did not join.
    Busy,
    /// It is not in the line: it ended, or was never there.
    Gone,
}

/// The grant of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Held {
    /// The first fence of a block that belongs to this grant alone.
    pub fence: Fence,
    /// How many fences there are in the block.
    pub block: u32,
    /// Whether a claim waits behind.
    pub wanted: bool,
}

impl Held {
    /// A grant with a block of so many fences from `fence` on; whether a claim waits behind.
    ///
    /// ```
    /// use leasehold::engine::{FENCE_BLOCK, Held};
    /// let held = Held::new(leasehold::Fence::new(7), FENCE_BLOCK, false);
    /// assert_eq!(held.fence.get(), 7);
    /// ```
    pub const fn new(fence: Fence, block: u32, wanted: bool) -> Self {
        Self {
            fence,
            block,
            wanted,
        }
    }
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Release {
    /// It was in the line, and is no longer.
    Released,
    /// It was not there.
    Gone,
}

/// Why a claim was not let into the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The line is in use with this other capacity.
    Capacity(u32),
    /// The weight is zero or more than the capacity.
    Weight,
    /// No fence is left below 2^63.
    Fences,
    /// The line has as many claims as it may.
    Full,
}

/// A change to a claim, to be told to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Change {
    /// The session to tell.
    pub session: SessionId,
    /// About which claim.
    pub claim: ClaimId,
    /// The kind of change.
    pub what: What,
}

/// The changes to a claim that did not ask for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// It waited and now holds.
    Granted(Held),
    /// It holds, and another claim joined the line behind it.
    Wanted,
    /// Its session said nothing for a lease.
    Expired,
    /// It was taken away.
    Evicted,
}

impl Place {
    /// Whether a fence belongs to this grant's block.
    pub fn owns(&self, fence: Fence) -> bool {
        self.fence
            .is_some_and(|first| (first.get()..=block_end(first.get())).contains(&fence.get()))
    }

    /// Its session said a word.
    pub(super) fn heard(&mut self, now: Micros) {
        self.deadline = self.deadline.max(now.saturating_add(self.lease));
    }

    pub(super) fn change(&self, what: What) -> Change {
        Change {
            session: self.session,
            claim: self.id,
            what,
        }
    }
}

/// The last fence of the block that begins here.
pub(super) fn block_end(first: u64) -> u64 {
    first.saturating_add(u64::from(FENCE_BLOCK) - 1)
}
