//! Work under a lock, from the lock to its release.

use std::fmt;

use crate::error::{Error, ErrorKind, Step};

/// Why a `run` failed, and what its work came to if the work was done.
///
/// `?` turns it into an [`Error`] where the work's result is of no use without the lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let mutex = client.mutex("x");
/// let failed = mutex.run(async |_| client.evict("x", "a test").await.is_ok()).await.unwrap_err();
/// assert!(failed.error.is_lost());
/// assert_eq!(failed.done, Some(true));
/// # Ok(()) }
/// ```
#[non_exhaustive]
pub struct RunError<T> {
    /// The failure of the lock.
    pub error: Error,
    /// The result of the work, if it was done: then the lock was lost, or could not be given back, after it.
    pub done: Option<T>,
}

impl<T> RunError<T> {
    /// The lock was not there, or the work was ended.
    pub(crate) const fn before(error: Error) -> Self {
        Self { error, done: None }
    }

    /// The work was done.
    pub(crate) const fn after(error: Error, done: T) -> Self {
        let done = Some(done);
        Self { error, done }
    }
}

/// The release after the work found that the lock had been lost.
pub(crate) fn was_lost() -> Error {
    let what = "the lock was lost before it was given back: another holder may have had it during the work";
    Error::new(ErrorKind::Lost, Step::Release, what)
}

impl<T> From<RunError<T>> for Error {
    fn from(failed: RunError<T>) -> Self {
        failed.error
    }
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.done.is_some() {
            "done"
        } else {
            "not done"
        };
        write!(f, "{:?} (the work was {done})", self.error)
    }
}

impl<T> std::error::Error for RunError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Does the work under a guard and gives it back. A loss ends the work.
macro_rules! under {
    ($guard:expr, $work:expr) => {{
        let guard = $guard;
        let done = tokio::select! {
            biased;
            why = guard.lost() => return Err(RunError::before(why)),
            done = $work(&guard) => done,
        };
        if let Err(lost) = guard.check() {
            return Err(RunError::after(lost, done));
        }
        match guard.release().await {
            Ok(crate::guard::Released::Released) => Ok(done),
            Ok(crate::guard::Released::WasLost) => Err(RunError::after(was_lost(), done)),
            Err(error) => Err(RunError::after(error, done)),
        }
    }};
}

/// Work under a lock of a kind, for one way to hold it: waiting, waiting for a time, and not waiting.
macro_rules! runs {
    ($handle:literal: $run:ident, $run_within:ident, $try_run:ident = $wait:ident, $within:ident, $try:ident -> $guard:ident) => {
        #[doc = concat!("Waits as [`", stringify!($wait), "`](Self::", stringify!($wait), "), does the work under the guard and releases. If the lock is lost the")]
        /// work's future is dropped where it stands.
        ///
        /// The work may borrow. Write it as `async |guard| { … }`: a closure that returns a block, `|guard| async move { … }`, is
        /// refused by the compiler with E0282, "type annotations needed".
        ///
        /// # Ordering
        #[doc = concat!("As [`", stringify!($wait), "`](Self::", stringify!($wait), ").")]
        /// # Cancel safety
        /// Dropping the future drops the work and releases in the background.
        /// # Errors
        #[doc = concat!("As [`", stringify!($wait), "`](Self::", stringify!($wait), "), and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was lost.")]
        /// Work that was done is not thrown away: [`RunError::done`] has its result.
        /// # Not promised
        /// Work that blocks the thread is ended only when it next awaits.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # let client = leasehold::connect("memory:").await?;
        #[doc = concat!("let held = ", $handle, ".", stringify!($run), "(async |guard| guard.check().is_ok()).await?;")]
        /// assert!(held);
        /// # Ok(()) }
        /// ```
        #[track_caller]
        pub fn $run<T, F>(&self, work: F) -> impl Future<Output = Result<T, RunError<T>>>
        where
            F: AsyncFnOnce(&$guard) -> T,
        {
            let lock = self.$wait();
            async move { under!(lock.await.map_err(RunError::before)?, work) }
        }

        #[doc = concat!("Like [`", stringify!($run), "`](Self::", stringify!($run), "), but waits for at most this long; then `None`, and the work was not begun.")]
        ///
        /// The time is that of the wait: the work takes as long as it takes.
        ///
        /// # Ordering
        #[doc = concat!("As [`", stringify!($within), "`](Self::", stringify!($within), ").")]
        /// # Cancel safety
        #[doc = concat!("As [`", stringify!($run), "`](Self::", stringify!($run), ").")]
        /// # Errors
        #[doc = concat!("As [`", stringify!($within), "`](Self::", stringify!($within), ") and [`", stringify!($run), "`](Self::", stringify!($run), "). Busy is `None`.")]
        /// # Not promised
        #[doc = concat!("As [`", stringify!($within), "`](Self::", stringify!($within), ") and [`", stringify!($run), "`](Self::", stringify!($run), ").")]
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # let client = leasehold::connect("memory:").await?;
        /// # use std::time::Duration;
        #[doc = concat!("let lock = ", $handle, ";")]
        #[doc = concat!("match lock.", stringify!($run_within), "(Duration::from_secs(2), async |_| 7).await? {")]
        ///     Some(told) => assert_eq!(told, 7),
        ///     None => eprintln!("busy"),
        /// }
        /// # Ok(()) }
        /// ```
        #[track_caller]
        pub fn $run_within<T, F>(
            &self,
            patience: Duration,
            work: F,
        ) -> impl Future<Output = Result<Option<T>, RunError<T>>>
        where
            F: AsyncFnOnce(&$guard) -> T,
        {
            let lock = self.$within(patience);
            async move {
                match lock.await.map_err(RunError::before)? {
                    Some(guard) => under!(guard, work).map(Some),
                    None => Ok(None),
                }
            }
        }

        #[doc = concat!("Like [`", stringify!($run), "`](Self::", stringify!($run), "), if the lock can be had now; otherwise `None`, and the work was not begun.")]
        ///
        /// # Ordering
        #[doc = concat!("As [`", stringify!($try), "`](Self::", stringify!($try), ").")]
        /// # Cancel safety
        #[doc = concat!("As [`", stringify!($run), "`](Self::", stringify!($run), ").")]
        /// # Errors
        #[doc = concat!("As [`", stringify!($try), "`](Self::", stringify!($try), ") and [`", stringify!($run), "`](Self::", stringify!($run), "). Busy is `None`.")]
        /// # Not promised
        #[doc = concat!("As [`", stringify!($try), "`](Self::", stringify!($try), ") and [`", stringify!($run), "`](Self::", stringify!($run), ").")]
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
        /// # let client = leasehold::connect("memory:").await?;
        #[doc = concat!("let lock = ", $handle, ";")]
        #[doc = concat!("assert_eq!(lock.", stringify!($try_run), "(async |_| 7).await?, Some(7));")]
        /// # Ok(()) }
        /// ```
        #[track_caller]
        pub fn $try_run<T, F>(
            &self,
            work: F,
        ) -> impl Future<Output = Result<Option<T>, RunError<T>>>
        where
            F: AsyncFnOnce(&$guard) -> T,
        {
            let lock = self.$try();
            async move {
                match lock.await.map_err(RunError::before)? {
                    Some(guard) => under!(guard, work).map(Some),
                    None => Ok(None),
                }
            }
        }
    };
}

pub(crate) use {runs, under};
