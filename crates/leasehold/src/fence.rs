//! The token of a grant.

use std::fmt;

/// How many fences one grant reserves: a grant serves at most this many turns.
pub const FENCE_BLOCK: u32 = 256;

/// The token of a grant: for one name, every later turn has a larger one, in every process.
///
/// Send it with every write and let the resource refuse a smaller one than it has seen ([`FenceGate`] does that in
/// memory). It fits a signed 64-bit column.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let first = client.mutex("x").lock().await?;
/// let fence = first.fence();
/// first.release().await?;
/// assert!(client.mutex("x").lock().await?.fence() > fence);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// A fence from its number, as read back from where it was stored.
    ///
    /// ```
    /// assert_eq!(leasehold::Fence::new(7).get(), 7);
    /// ```
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// A fence that came from outside; none if it is larger than it can be. A resource that has seen a fence which is far
    /// too large refuses every later holder.
    #[cfg(any(test, feature = "redis"))]
    pub(crate) const fn bounded(number: u64, most: u64) -> Option<Self> {
        if number <= most {
            Some(Self(number))
        } else {
            None
        }
    }

    /// The number; at most `i64::MAX`.
    ///
    /// ```
    /// assert_eq!(leasehold::Fence::new(7).get(), 7);
    /// ```
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number for a signed column.
    ///
    /// ```
    /// assert_eq!(leasehold::Fence::new(7).as_i64(), 7);
    /// ```
    pub const fn as_i64(self) -> i64 {
        self.0 as i64
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({})", self.0)
    }
}

/// The checking side of fences: remembers the largest fence it was shown and refuses smaller ones.
///
/// For a resource that lives in one process. Show it the fence **before the first read** of a critical section:
/// a fence protects only from the moment the resource has seen it.
///
/// ```
/// use leasehold::{Fence, FenceGate};
///
/// let gate = FenceGate::new();
/// assert!(gate.admit(Fence::new(7)).is_ok());
/// assert!(gate.admit(Fence::new(9)).is_ok());
/// assert_eq!(gate.admit(Fence::new(7)).unwrap_err().seen, Fence::new(9));
/// ```
#[derive(Debug, Default)]
pub struct FenceGate {
    seen: std::sync::atomic::AtomicU64,
}

/// A [`FenceGate`] has seen a larger fence: the caller that shows this one no longer holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleFence {
    /// The fence that was shown.
    pub shown: Fence,
    /// The largest fence the gate has seen.
    pub seen: Fence,
}

impl FenceGate {
    /// A gate that has seen nothing.
    ///
    /// ```
    /// let gate = leasehold::FenceGate::new();
    /// assert!(gate.admit(leasehold::Fence::new(0)).is_ok());
    /// ```
    pub const fn new() -> Self {
        Self {
            seen: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// Lets a fence pass unless a larger one was shown before.
    ///
    /// # Errors
    /// [`StaleFence`] with both fences.
    ///
    /// ```
    /// use leasehold::{Fence, FenceGate};
    /// let gate = FenceGate::new();
    /// gate.admit(Fence::new(3)).unwrap();
    /// assert!(gate.admit(Fence::new(2)).is_err());
    /// ```
    pub fn admit(&self, fence: Fence) -> Result<(), StaleFence> {
        let seen = self
            .seen
            .fetch_max(fence.0, std::sync::atomic::Ordering::AcqRel);
        if seen > fence.0 {
            return Err(StaleFence {
                shown: fence,
                seen: Fence(seen),
            });
        }
        Ok(())
    }
}

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "fence {} is stale: {} was seen, so another holder has had the lock since: stop this work",
            self.shown, self.seen
        )
    }
}

impl std::error::Error for StaleFence {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same fence may come twice: one holder makes many requests.
    #[test]
    fn a_gate_refuses_what_is_older_than_what_it_saw() {
        let gate = FenceGate::new();
        let (old, new) = (Fence::new(3), Fence::new(4));
        assert!(gate.admit(old).is_ok() && gate.admit(old).is_ok());
        assert!(gate.admit(new).is_ok());
        let stale = gate.admit(old).unwrap_err();
        assert_eq!((stale.shown, stale.seen), (old, new));
        assert!(gate.admit(new).is_ok());
        let said = stale.to_string();
        assert!(said.contains("fence 3 is stale: 4 was seen"), "{said}");
    }

    #[test]
    fn a_signed_column_gets_the_same_number() {
        assert_eq!(Fence::new(7).as_i64(), 7);
        assert_eq!(Fence::new(i64::MAX as u64).as_i64(), i64::MAX);
    }

    #[test]
    fn a_fence_from_outside_has_a_bound() {
        assert_eq!(Fence::bounded(7, 7), Some(Fence::new(7)));
        assert_eq!(Fence::bounded(8, 7), None);
    }
}
