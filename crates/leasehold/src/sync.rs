//! A mutex without poisoning.

use std::sync::{MutexGuard, PoisonError};

/// A mutex whose critical sections all leave its state whole, also by a panic.
#[derive(Debug, Default)]
pub(crate) struct Shared<T>(std::sync::Mutex<T>);

impl<T> Shared<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// None while another thread has it.
    #[cfg(all(feature = "file", unix))]
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
