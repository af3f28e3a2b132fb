//! Values that one process of a fleet loads, blocking.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::Background;
use crate::error::Result;
use crate::kinds::LoadError;

/// A value that one process of a fleet loads; see [`leasehold::Cached`](crate::Cached).
///
/// ```
/// use std::time::Duration;
///
/// let client = leasehold::blocking::connect("memory:")?;
/// let answer = client.cached("answer").ttl(Duration::from_secs(600));
/// let value = answer.get_or_load(|| Ok::<_, leasehold::Error>(Some(42)))?;
/// assert_eq!(value.as_deref(), Some(&42));
/// answer.forget()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[must_use = "nothing is loaded until it is asked for"]
pub struct Cached<T> {
    twin: crate::Cached<T>,
    background: Arc<Background>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    pub(super) fn new(twin: crate::Cached<T>, background: &Arc<Background>) -> Self {
        let background = background.clone();
        Self { twin, background }
    }

    fn with(self, change: impl FnOnce(crate::Cached<T>) -> crate::Cached<T>) -> Self {
        let twin = change(self.twin);
        Self { twin, ..self }
    }

    /// How long a value lasts; see [`leasehold::Cached::ttl`](crate::Cached::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|twin| twin.ttl(ttl))
    }

    /// Up to which part of its ttl a value ends earlier; see [`leasehold::Cached::ttl_jitter`](crate::Cached::ttl_jitter).
    pub fn ttl_jitter(self, part: f64) -> Self {
        self.with(|twin| twin.ttl_jitter(part))
    }

    /// How long "nothing there" lasts; see [`leasehold::Cached::ttl_of_nothing`](crate::Cached::ttl_of_nothing).
    pub fn ttl_of_nothing(self, ttl: Duration) -> Self {
        self.with(|twin| twin.ttl_of_nothing(ttl))
    }

    /// For how long an old value is told while it is reloaded; see [`leasehold::Cached::stale`](crate::Cached::stale).
    pub fn stale(self, stale: Duration) -> Self {
        self.with(|twin| twin.stale(stale))
    }

    /// In which last part of its ttl a value is reloaded; see [`leasehold::Cached::early`](crate::Cached::early).
    pub fn early(self, part: f64) -> Self {
        self.with(|twin| twin.early(part))
    }

    /// For how long no look at the store is taken; see [`leasehold::Cached::local`](crate::Cached::local).
    pub fn local(self, local: Duration) -> Self {
        self.with(|twin| twin.local(local))
    }

    /// The lease of the loader's lock.
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|twin| twin.lease(lease))
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Cached<T> {
    /// The value, loaded if it is not there; see [`leasehold::Cached::get_or_load`](crate::Cached::get_or_load). A blocking load cannot be
    /// ended from outside: if the lock is lost meanwhile, what it loaded is not kept.
    ///
    /// # Errors
    /// Those of the async call.
    pub fn get_or_load<E: Send + Sync + 'static>(
        &self,
        load: impl FnOnce() -> Result<Option<T>, E>,
    ) -> Result<Option<Arc<T>>, LoadError<E>> {
        let (want, wanted) = oneshot::channel();
        let (bring, brought) = oneshot::channel();
        let mut told = pin!(self.twin.get_or_load(async move || {
            let _ = want.send(());
            brought.await.expect("a thread that panics waits no longer")
        }));
        let told_or_wanted = async {
            tokio::select! {
                biased;
                told = &mut told => Some(told),
                Ok(()) = wanted => None,
            }
        };
        match self.background.wait_for(told_or_wanted)? {
            Some(told) => told,
            // Outside of the runtime: the load may block.
            None => {
                let _ = bring.send(load());
                self.background.wait_for(told)?
            }
        }
    }

    /// Forgets the value; see [`leasehold::Cached::forget`](crate::Cached::forget).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn forget(&self) -> Result<()> {
        self.background.block_on(self.twin.forget())
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self {
            twin: self.twin.clone(),
            background: self.background.clone(),
        }
    }
}

impl<T> fmt::Debug for Cached<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}
