//! Why a value could not be had.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;

/// Why a cached value could not be had. The same failure is told to all who waited for it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// use leasehold::LoadError;
///
/// let failed = client.cached::<u64>("x").get_or_load(async || Err("the database is gone")).await;
/// assert!(matches!(failed, Err(LoadError::Load(why)) if *why == "the database is gone"));
/// # Ok(()) }
/// ```
pub enum LoadError<E> {
    /// The load failed. This is not kept: the next request loads again.
    Load(Arc<E>),
    /// The lock or the store failed.
    Lock(Error),
}

impl<E> LoadError<E> {
    /// The same failure, for another who waited for it.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Load(error) => Self::Load(error.clone()),
            Self::Lock(error) => Self::Lock(error.again()),
        }
    }
}

impl<E> From<Error> for LoadError<E> {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl From<LoadError<Error>> for Error {
    fn from(failed: LoadError<Error>) -> Self {
        match failed {
            LoadError::Load(error) => error.again(),
            LoadError::Lock(error) => error,
        }
    }
}

impl<E: fmt::Display> fmt::Display for LoadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for LoadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => write!(f, "the load failed: {error:?}"),
            Self::Lock(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for LoadError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load(error) => Some(&**error),
            Self::Lock(error) => Some(error),
        }
    }
}
