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
/// let failed = mutex.run(async |_| client.evict("x", None, "a test").await.is_ok()).await.unwrap_err();
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

/// Waits for a guard, does the work under it and gives it back. A loss ends the work.
macro_rules! under {
    ($lock:expr, $work:expr) => {{
        let guard = $lock.await.map_err(RunError::before)?;
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

pub(crate) use under;
