//! A few holders at a time.

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use super::run::{RunError, runs, under, was_lost};
use super::{Handle, terms};
use crate::claim::Mode;
use crate::error::Result;
use crate::guard::Guard;

/// A few holders at a time: n permits, taken one or several at once, in order of arrival.
///
/// All users of a name must agree on n: another number is refused while the name is in use.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let gpus = client.semaphore("gpu", 4);
/// let two = gpus.acquire_many(2).await?;
/// let one = gpus.acquire().await?;
/// assert!(gpus.try_acquire_many(2).await?.is_none());
/// assert!(gpus.acquire_many(5).await.is_err()); // could never be granted
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a semaphore does nothing until it is asked for permits"]
pub struct Semaphore(Handle, u32);

impl Semaphore {
    pub(crate) const fn new(handle: Handle, of: u32) -> Self {
        Self(handle, of)
    }

    terms!();

    const fn mode(&self, count: u32) -> Mode {
        Mode::Permits { count, of: self.1 }
    }

    /// Waits for one permit. Ordering, cancel safety, errors and what is not promised are those of
    /// [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let permit = client.semaphore("x", 2).acquire().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire(&self) -> impl Future<Output = Result<Guard>> + Send + '_ {
        self.acquire_many(1)
    }

    /// Waits for several permits, all or none. More than there are is refused at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let permits = client.semaphore("x", 2).acquire_many(2).await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_many(&self, count: u32) -> impl Future<Output = Result<Guard>> + Send + '_ {
        self.0.wait(self.mode(count), Location::caller())
    }

    /// One permit, if there is one now; otherwise as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.semaphore("x", 2).try_acquire().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>>> + Send + '_ {
        self.try_acquire_many(1)
    }

    /// Several permits, if there are enough now.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.semaphore("x", 2).try_acquire_many(2).await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn try_acquire_many(
        &self,
        count: u32,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send + '_ {
        self.0.take(self.mode(count), false, Location::caller())
    }

    /// Like [`acquire`](Self::acquire), for at most this long; then `None`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// assert!(client.semaphore("x", 2).acquire_within(Duration::from_secs(1)).await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_within(
        &self,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send + '_ {
        self.acquire_many_within(1, patience)
    }

    /// Like [`acquire_many`](Self::acquire_many), for at most this long; then `None`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// assert!(client.semaphore("x", 2).acquire_many_within(2, Duration::from_secs(1)).await?.is_some());
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn acquire_many_within(
        &self,
        count: u32,
        patience: Duration,
    ) -> impl Future<Output = Result<Option<Guard>>> + Send + '_ {
        self.0
            .within(self.mode(count), patience, Location::caller())
    }

    runs!("client.semaphore(\"x\", 2)": run, run_within, try_run = acquire, acquire_within, try_acquire -> Guard);
}
