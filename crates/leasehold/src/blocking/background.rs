//! How a thread waits for the runtime of the background thread.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind, Result, Step};

/// The runtime that every call blocks on, alive while a clone is left.
pub(crate) struct Background {
    pub(super) handle: Handle,
    pub(super) _gone: oneshot::Sender<()>,
}

impl Background {
    pub(super) fn refuse_inside_runtime() -> Result<()> {
        if Handle::try_current().is_err() || !polls_a_task() {
            return Ok(());
        }
        let what = "a blocking call inside an async task would block its runtime; use the async API there, or spawn_blocking";
        Err(Error::new(ErrorKind::Invalid, Step::Turn, what))
    }

    pub(super) fn block_on<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.wait_for(call)?
    }

    /// Blocks on any future.
    pub(super) fn wait_for<T>(&self, call: impl Future<Output = T>) -> Result<T> {
        Self::refuse_inside_runtime()?;
        Ok(block_on(&self.handle, call))
    }
}

/// Runs a future on this thread. `Handle::block_on` panics in a task that Tokio does not count
/// (`tokio::task::unconstrained`), and nothing tells such a task from a thread: there the call blocks its thread.
fn block_on<T>(handle: &Handle, call: impl Future<Output = T>) -> T {
    let _timers = handle.enter();
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut call = pin!(call);
    loop {
        match call.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Whether this thread is polling an async task. Tokio counts what a task does in one poll, up to a budget; on a thread
/// that may block (`spawn_blocking`, `block_in_place`) there is none.
fn polls_a_task() -> bool {
    const MORE_THAN_A_BUDGET: u32 = 256;
    let mut context = Context::from_waker(Waker::noop());
    let mut spent = |_| {
        pin!(tokio::task::consume_budget())
            .poll(&mut context)
            .is_pending()
    };
    (0..MORE_THAN_A_BUDGET).any(&mut spent)
}
