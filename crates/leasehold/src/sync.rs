//! A mutex that survives a panic of its holder, and who goes on first.

use std::sync::{MutexGuard, PoisonError};

/// A mutex whose critical sections all leave its state whole, also by a panic.
#[derive(Debug, Default)]
pub(crate) struct Shared<T>(std::sync::Mutex<T>);

impl<T> Shared<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None if somebody has it locked.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        use std::sync::TryLockError;

        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }
}

/// Lets those go on first who have been woken: what they are about to ask need not wait for our tidying up.
#[cfg(feature = "zookeeper")]
pub(crate) async fn after_others() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
