//! One holder at a time.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use super::run::{RunError, runs, under, was_lost};
use super::{Handle, reentrant, terms};
use crate::claim::Mode;
use crate::error::Result;
use crate::guard::Guard;

/// One holder at a time.
///
/// # Which kind?
/// A mutex if one at a time is enough; [`RwLock`](crate::RwLock) if most only look; [`Semaphore`](crate::Semaphore) if
/// a few at a time are fine; [`Multi`](crate::Multi) if one step needs several names.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::connect("memory:").await?;
/// let stock = client.mutex("stock:42").lease(Duration::from_secs(5));
/// let guard = stock.lock().await?;
/// assert!(stock.try_lock().await?.is_none());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a mutex does nothing until it is asked for its lock"]
pub struct Mutex(Handle);

impl Mutex {
    pub(crate) const fn new(handle: Handle) -> Self {
        Self(handle)
    }

    pub(super) fn name(&self) -> Option<&crate::name::Name> {
        self.0.name()
    }

    terms!();
    reentrant!();

    /// Waits until this task holds the lock.
    ///
    /// # Ordering
    /// First come, first served between processes; tasks of one process may take turns in a row within the client's
    /// [`TurnBound`](crate::TurnBound), in order of arrival, unless [`strict`](Self::strict).
    /// # Cancel safety
    /// Dropping the future gives up the place; a claim already sent is withdrawn in the background.
    /// # Errors
    /// If the engine refuses or cannot be reached. Never for being busy: it waits.
    /// # Not promised
    /// A future that is not polled keeps its place, and may be granted the lock: do not hold on to it unpolled.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("x").lock().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = Result<Guard>> + Send + '_ {
        self.0.wait(Mode::Mutex, Location::caller())
    }

    /// The lock, if it is free now. At most one round trip.
    ///
    /// # Ordering
    /// Does not join the line: it never passes a waiter.
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    /// # Errors
    /// If the engine refuses or cannot be reached. Busy is `None`. During an outage it waits for a connection as long as every
    /// call does (Redis: the URL's `timeout`, 2 s), and only then is it an error; wrap it in `tokio::time::timeout` for less.
    /// # Not promised
    /// That the lock was held at the moment of the answer: it may have become free meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// if let Some(guard) = client.mutex("x").try_lock().await? {
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_lock(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + '_ {
        self.0.take(Mode::Mutex, false, Location::caller())
    }

    /// Like [`lock`](Self::lock), for at most this long; then `None`.
    ///
    /// # Ordering
    /// As [`lock`](Self::lock).
    /// # Cancel safety
    /// As [`lock`](Self::lock); running out of time is the same as dropping the future.
    /// # Errors
    /// As [`lock`](Self::lock). Running out of time is `None` if the name was seen in use meanwhile; if the engine did not
    /// say so, that is [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    /// # Not promised
    /// That `None` comes to the microsecond: the timer counts in milliseconds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// use std::time::Duration;
    /// let guard = client.mutex("x").lock().await?;
    /// assert!(client.mutex("x").lock_within(Duration::from_millis(5)).await?.is_none());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn lock_within(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send + '_ {
        self.0.within(Mode::Mutex, patience, Location::caller())
    }

    runs!("client.mutex(\"x\")": run, run_within, try_run = lock, lock_within, try_lock -> Guard);
}
