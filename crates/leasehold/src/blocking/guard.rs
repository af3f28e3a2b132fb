//! Guards that are released by a blocking call.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::Background;
use crate::error::Result;
use crate::guard::Released;

/// A guard and the background that keeps it alive. The guard is declared first: it is dropped first.
pub(super) struct Held<G> {
    guard: G,
    background: Arc<Background>,
}

impl<G> Held<G> {
    pub(super) fn new(guard: G, background: &Arc<Background>) -> Self {
        let background = background.clone();
        Self { guard, background }
    }
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[must_use = "a guard that is dropped at once releases the lock at once"]
        pub struct $name(pub(super) Held<crate::$name>);

        impl $name {
            /// Gives the lock back and says whether it was held until now; see [`leasehold::Guard::release`](crate::Guard::release).
            ///
            /// # Errors
            /// If the engine could not be told. The background goes on trying until the lease ends.
            pub fn release(self) -> Result<Released> {
                self.0.background.block_on(self.0.guard.release())
            }
        }

        impl Deref for $name {
            type Target = crate::$name;
            fn deref(&self) -> &Self::Target {
                &self.0.guard
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.guard.fmt(f)
            }
        }
    };
}

guard! {
    /// A held lock; everything but the release is that of [`leasehold::Guard`](crate::Guard).
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// let guard = client.mutex("x").lock()?;
    /// guard.check()?;
    /// assert_eq!(guard.release()?, leasehold::Released::Released);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    Guard
}

guard! {
    /// A held write lock; everything but the release is that of [`leasehold::WriteGuard`](crate::WriteGuard).
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// let reader = client.rwlock("x").write()?.downgrade()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    WriteGuard
}

guard! {
    /// Several held names; everything but the release is that of [`leasehold::MultiGuard`](crate::MultiGuard).
    ///
    /// ```
    /// let client = leasehold::blocking::connect("memory:")?;
    /// let guard = client.multi(["a", "b"]).lock()?;
    /// assert_eq!(guard.guards().len(), 2);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    MultiGuard
}

impl WriteGuard {
    /// Goes on as a reader; see [`leasehold::WriteGuard::downgrade`](crate::WriteGuard::downgrade).
    ///
    /// # Errors
    /// If the lock was no longer held.
    pub fn downgrade(self) -> Result<Guard> {
        let Held { guard, background } = self.0;
        let guard = background.block_on(guard.downgrade())?;
        Ok(Guard(Held { guard, background }))
    }
}
