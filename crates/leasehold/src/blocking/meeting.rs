//! Latch and barrier, blocking: each call blocks on its async twin.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Background;
use crate::error::Result;
use crate::kinds::Passed;

/// A count that opens for all who wait; see [`leasehold::Latch`](crate::Latch).
///
/// ```
/// let client = leasehold::blocking::connect("memory:")?;
/// let ready = client.latch("ready", 1);
/// assert_eq!(ready.left()?, 1);
/// ready.count_down()?;
/// ready.wait()?;
/// ready.reset()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a latch does nothing until it is counted down or waited for"]
pub struct Latch {
    twin: crate::Latch,
    background: Arc<Background>,
}

impl Latch {
    pub(super) fn new(twin: crate::Latch, background: &Arc<Background>) -> Self {
        let background = background.clone();
        Self { twin, background }
    }

    /// For how long the count is kept; see [`leasehold::Latch::keep`](crate::Latch::keep).
    pub fn keep(self, keep: Duration) -> Self {
        let twin = self.twin.keep(keep);
        Self { twin, ..self }
    }

    /// Counts down by one; see [`leasehold::Latch::count_down`](crate::Latch::count_down).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn count_down(&self) -> Result<u32> {
        self.background.block_on(self.twin.count_down())
    }

    /// How many are left; see [`leasehold::Latch::left`](crate::Latch::left).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn left(&self) -> Result<u32> {
        self.background.block_on(self.twin.left())
    }

    /// Waits until the latch is open; see [`leasehold::Latch::wait`](crate::Latch::wait).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn wait(&self) -> Result<()> {
        self.background.block_on(self.twin.wait())
    }

    /// Like [`wait`](Self::wait), for at most this long; see [`leasehold::Latch::wait_within`](crate::Latch::wait_within).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn wait_within(&self, patience: Duration) -> Result<bool> {
        self.background.block_on(self.twin.wait_within(patience))
    }

    /// Lets it begin anew; see [`leasehold::Latch::reset`](crate::Latch::reset).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn reset(&self) -> Result<()> {
        self.background.block_on(self.twin.reset())
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}

/// So many arrive, and all go; see [`leasehold::Barrier`](crate::Barrier).
///
/// ```
/// let client = leasehold::blocking::connect("memory:")?;
/// let step = client.barrier("step", 2);
/// std::thread::scope(|scope| {
///     let other = scope.spawn(|| step.arrive());
///     let (ours, theirs) = (step.arrive()?, other.join().unwrap()?);
///     assert_eq!(ours.generation, theirs.generation);
///     Ok::<(), leasehold::Error>(())
/// })?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "a barrier does nothing until a member arrives"]
pub struct Barrier {
    twin: crate::Barrier,
    background: Arc<Background>,
}

impl Barrier {
    pub(super) fn new(twin: crate::Barrier, background: &Arc<Background>) -> Self {
        let background = background.clone();
        Self { twin, background }
    }

    /// How long a member that cannot be heard counts as alive.
    pub fn lease(self, lease: Duration) -> Self {
        let twin = self.twin.lease(lease);
        Self { twin, ..self }
    }

    /// Arrives, and waits until all have arrived; see [`leasehold::Barrier::arrive`](crate::Barrier::arrive).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn arrive(&self) -> Result<Passed> {
        self.background.block_on(self.twin.arrive())
    }

    /// Like [`arrive`](Self::arrive), for at most this long; see [`leasehold::Barrier::arrive_within`](crate::Barrier::arrive_within).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn arrive_within(&self, patience: Duration) -> Result<Option<Passed>> {
        self.background.block_on(self.twin.arrive_within(patience))
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}
