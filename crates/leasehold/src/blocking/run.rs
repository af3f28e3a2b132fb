//! Work under a lock, blocking.

use std::time::Duration;

use super::{Guard, Multi, MultiGuard, Mutex, RwLock, Semaphore, WriteGuard};
use crate::error::Result;
use crate::guard::Released;
use crate::kinds::{RunError, was_lost};

/// Does the work under a guard and gives it back.
macro_rules! under {
    ($guard:expr, $work:expr) => {{
        let guard = $guard;
        let done = $work(&guard);
        if let Err(lost) = guard.check() {
            return Err(RunError::after(lost, done));
        }
        match guard.release() {
            Ok(Released::Released) => Ok(done),
            Ok(Released::WasLost) => Err(RunError::after(was_lost(), done)),
            Err(error) => Err(RunError::after(error, done)),
        }
    }};
}

/// Work under a lock, for each way to hold one: waiting, waiting for a time, and not waiting.
macro_rules! runs {
    ($kind:ident($handle:literal): $run:ident, $run_within:ident, $try_run:ident = $wait:ident, $within:ident, $try:ident -> $guard:ident) => {
        impl $kind {
            #[doc = concat!("Waits as [`", stringify!($wait), "`](Self::", stringify!($wait), "), does the work and releases. The work looks at its guard:")]
            /// a blocking closure cannot be ended from outside.
            ///
            /// # Errors
            /// Those of the wait, and [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was lost. Work that was done is not
            /// thrown away: [`RunError::done`] has its result.
            #[track_caller]
            pub fn $run<T>(&self, work: impl FnOnce(&$guard) -> T) -> Result<T, RunError<T>> {
                let guard = self.$wait().map_err(RunError::before)?;
                under!(guard, work)
            }

            #[doc = concat!("Like [`", stringify!($run), "`](Self::", stringify!($run), "), but waits for at most this long; then `None`, and the work was not begun.")]
            #[doc = concat!("Ordering and what is not promised are those of [`leasehold::", stringify!($kind), "::", stringify!($run_within), "`](crate::", stringify!($kind), "::", stringify!($run_within), ").")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($run), "`](Self::", stringify!($run), "). Busy is `None`.")]
            ///
            /// ```
            /// # let client = leasehold::blocking::connect("memory:")?;
            /// # use std::time::Duration;
            #[doc = concat!("let lock = ", $handle, ";")]
            #[doc = concat!("let sold = lock.", stringify!($run_within), "(Duration::from_secs(2), |_| 7)?;")]
            /// assert_eq!(sold, Some(7));
            /// # Ok::<(), leasehold::Error>(())
            /// ```
            #[track_caller]
            pub fn $run_within<T>(
                &self,
                patience: Duration,
                work: impl FnOnce(&$guard) -> T,
            ) -> Result<Option<T>, RunError<T>> {
                match self.$within(patience).map_err(RunError::before)? {
                    Some(guard) => under!(guard, work).map(Some),
                    None => Ok(None),
                }
            }

            #[doc = concat!("Like [`", stringify!($run), "`](Self::", stringify!($run), "), if the lock can be had now; otherwise `None`, and the work was not begun.")]
            #[doc = concat!("Ordering and what is not promised are those of [`leasehold::", stringify!($kind), "::", stringify!($try_run), "`](crate::", stringify!($kind), "::", stringify!($try_run), ").")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($run), "`](Self::", stringify!($run), "). Busy is `None`.")]
            ///
            /// ```
            /// # let client = leasehold::blocking::connect("memory:")?;
            #[doc = concat!("let lock = ", $handle, ";")]
            #[doc = concat!("assert_eq!(lock.", stringify!($try_run), "(|_| 7)?, Some(7));")]
            /// # Ok::<(), leasehold::Error>(())
            /// ```
            #[track_caller]
            pub fn $try_run<T>(
                &self,
                work: impl FnOnce(&$guard) -> T,
            ) -> Result<Option<T>, RunError<T>> {
                match self.$try().map_err(RunError::before)? {
                    Some(guard) => under!(guard, work).map(Some),
                    None => Ok(None),
                }
            }
        }
    };
}

runs!(Mutex("client.mutex(\"x\")"): run, run_within, try_run = lock, lock_within, try_lock -> Guard);
runs!(RwLock("client.rwlock(\"x\")"): run_read, run_read_within, try_run_read = read, read_within, try_read -> Guard);
runs!(RwLock("client.rwlock(\"x\")"): run_write, run_write_within, try_run_write = write, write_within, try_write -> WriteGuard);
runs!(Semaphore("client.semaphore(\"x\", 2)"): run, run_within, try_run = acquire, acquire_within, try_acquire -> Guard);
runs!(Multi("client.multi([\"a\", \"b\"])"): run, run_within, try_run = lock, lock_within, try_lock -> MultiGuard);
