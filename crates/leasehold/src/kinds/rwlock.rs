//! Many readers or one writer.

use std::future::Future;
use std::ops::Deref;
use std::panic::Location;
use std::time::Duration;

use super::run::{RunError, runs, under, was_lost};
use super::{Handle, reentrant, terms};
use crate::claim::Mode;
use crate::error::Result;
use crate::guard::{Guard, Released};

/// Many readers or one writer, in order of arrival: a writer that waits is not starved by later readers.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let config = client.rwlock("config");
/// let (one, two) = (config.read().await?, config.read().await?);
/// assert!(config.try_write().await?.is_none());
/// drop((one, two));
/// let reader = config.write().await?.downgrade().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is asked for"]
pub struct RwLock(Handle);

impl RwLock {
    pub(crate) const fn new(handle: Handle) -> Self {
        Self(handle)
    }

    terms!();
    reentrant!();

    /// Waits until this task may read. Ordering, cancel safety, errors and what is not promised are those of
    /// [`Mutex::lock`](crate::Mutex::lock); readers of one process share one place in the engine.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.rwlock("x").read().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = Result<Guard>> + Send + '_ {
        self.0.wait(Mode::Read, Location::caller())
    }

    /// A read lock, if there is room now; otherwise as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.rwlock("x").try_read().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_read(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + '_ {
        self.0.take(Mode::Read, false, Location::caller())
    }

    /// Like [`read`](Self::read), for at most this long; then `None`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// assert!(client.rwlock("x").read_within(Duration::from_secs(1)).await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn read_within(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send + '_ {
        self.0.within(Mode::Read, patience, Location::caller())
    }

    /// Waits until this task may write: alone. Ordering, cancel safety, errors and what is not promised are those of
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.rwlock("x").write().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = Result<WriteGuard>> + Send + '_ {
        let wait = self.0.wait(Mode::Write, Location::caller());
        async { Ok(WriteGuard(wait.await?)) }
    }

    /// A write lock, if it is free now; otherwise as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.rwlock("x").try_write().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_write(&self) -> impl Future<Output = Result<Option<WriteGuard>>> + Send + '_ {
        let take = self.0.take(Mode::Write, false, Location::caller());
        async { Ok(take.await?.map(WriteGuard)) }
    }

    /// Like [`write`](Self::write), for at most this long; then `None`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// assert!(client.rwlock("x").write_within(Duration::from_secs(1)).await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn write_within(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<WriteGuard>>> + Send + '_ {
        let within = self.0.within(Mode::Write, patience, Location::caller());
        async { Ok(within.await?.map(WriteGuard)) }
    }

    runs!("client.rwlock(\"x\")": run_read, run_read_within, try_run_read = read, read_within, try_read -> Guard);

    runs!("client.rwlock(\"x\")": run_write, run_write_within, try_run_write = write, write_within, try_write -> WriteGuard);
}

/// A held write lock: a [`Guard`] that can go on as a reader.
#[derive(Debug)]
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct WriteGuard(Guard);

impl WriteGuard {
    /// Goes on as a reader without letting a writer in between. Same fence.
    ///
    /// # Ordering
    /// Readers at the front of the line are let in; writers keep waiting.
    /// # Cancel safety
    /// Dropping the future releases the lock in the background. Until the engine has heard of that, the lock keeps
    /// others out as the write lock did.
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was no longer held,
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if it was entered more than once, and those of the engine; the
    /// lock is given back then, as if the future had been dropped.
    /// # Not promised
    /// From this call on the owner of a re-entrant lock re-enters it to read only; to write is refused.
    /// There is no way back up: release, then ask to write.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let config = client.rwlock("config");
    /// let reader = config.write().await?.downgrade().await?;
    /// assert!(config.try_read().await?.is_some());
    /// # Ok(()) }
    /// ```
    pub async fn downgrade(self) -> Result<Guard> {
        self.0.turn().downgrade().await?;
        Ok(self.0)
    }

    /// Gives the lock back; see [`Guard::release`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// client.rwlock("x").write().await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<Released> {
        self.0.release().await
    }
}

impl From<WriteGuard> for Guard {
    /// Still the writer, for code that does not care how it holds the lock.
    fn from(writer: WriteGuard) -> Self {
        writer.0
    }
}

impl Deref for WriteGuard {
    type Target = Guard;
    fn deref(&self) -> &Guard {
        &self.0
    }
}
