//! What the attribute `locked` is written out with. No part of the API: it changes with the attribute.

use std::future::Future;

use crate::error::{Error, Result};
use crate::guard::{Guard, Released};
use crate::kinds::was_lost;

/// What a locked function returns.
#[diagnostic::on_unimplemented(
    message = "a locked function returns a `Result` whose error is `From<leasehold::Error>`",
    label = "this is not such a `Result`",
    note = "the lock may be lost, or its engine out of reach: the error must be able to say so"
)]
pub trait Outcome {
    /// The lock was not there, or was lost.
    fn failed(error: Error) -> Self;

    /// Whether the body itself succeeded.
    fn is_ok(&self) -> bool;
}

impl<T, E: From<Error>> Outcome for Result<T, E> {
    fn failed(error: Error) -> Self {
        Err(error.into())
    }

    fn is_ok(&self) -> bool {
        self.is_ok()
    }
}

/// The body's result, or the loss that ended it.
pub async fn race<R: Outcome>(guard: &Guard, body: impl Future<Output = R>) -> R {
    tokio::select! {
        biased;
        why = guard.lost() => R::failed(why),
        done = body => done,
    }
}

/// The body of a function that blocks. A function of its own: a closure that is called where it stands could not return what
/// it borrows.
pub fn work<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// Gives the lock back. A body that succeeded and lost its lock has failed.
pub async fn end<R: Outcome>(
    done: R,
    held: Result<()>,
    release: impl Future<Output = Result<Released>>,
) -> R {
    match held {
        // Dropping the guard gives it back in the background: the engine may be out of reach.
        Err(lost) => judge(done, Err(lost)),
        Ok(()) => judge(done, told(release.await)),
    }
}

/// Like [`end`], blocking.
pub fn end_blocking<R: Outcome>(
    done: R,
    held: Result<()>,
    release: impl FnOnce() -> Result<Released>,
) -> R {
    match held {
        Err(lost) => judge(done, Err(lost)),
        Ok(()) => judge(done, told(release())),
    }
}

fn judge<R: Outcome>(done: R, held: Result<()>) -> R {
    match held {
        Err(lost) if done.is_ok() => R::failed(lost),
        _ => done,
    }
}

/// Whether the lock was held until its release.
fn told(released: Result<Released>) -> Result<()> {
    match released {
        Ok(Released::Released) => Ok(()),
        Ok(Released::WasLost) => Err(was_lost()),
        Err(error) => {
            // The work was done under a valid guard, and the background goes on releasing.
            tracing::warn!(%error, "a locked function has returned, and its lock is not given back yet");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorKind, Step};

    type Done = Result<u8, ErrorKind>;

    impl From<Error> for ErrorKind {
        fn from(error: Error) -> Self {
            error.kind()
        }
    }

    fn lost() -> Error {
        Error::new(ErrorKind::Lost, Step::Hold, "evicted")
    }

    fn silent() -> Error {
        Error::new(ErrorKind::Unavailable, Step::Release, "no answer")
    }

    /// Both ends, which must agree.
    async fn both(done: Done, held: fn() -> Result<()>, release: fn() -> Result<Released>) -> Done {
        let told = end(done, held(), async { release() }).await;
        assert_eq!(told, end_blocking(done, held(), release));
        told
    }

    #[tokio::test]
    async fn a_loss_is_told_and_a_release_that_was_not_heard_is_not() {
        let (held, free) = (|| Ok(()), || Ok(Released::Released));
        assert_eq!(both(Ok(7), held, free).await, Ok(7));
        let gone = || Ok(Released::WasLost);
        assert_eq!(both(Ok(7), held, gone).await, Err(ErrorKind::Lost));
        assert_eq!(both(Ok(7), held, || Err(silent())).await, Ok(7));
        // What is lost is not given back by a call that may take long.
        let never = || unreachable!("it was lost");
        let late = both(Ok(7), || Err(lost()), never).await;
        assert_eq!(late, Err(ErrorKind::Lost));
    }

    #[tokio::test]
    async fn the_bodys_own_error_stays() {
        let denied = Err(ErrorKind::Denied);
        let gone = || Ok(Released::WasLost);
        assert_eq!(both(denied, || Ok(()), gone).await, denied);
        let never = || unreachable!("it was lost");
        assert_eq!(both(denied, || Err(lost()), never).await, denied);
    }
}
