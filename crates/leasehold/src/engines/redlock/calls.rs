//! The same question to several nodes, and as many answers as are needed.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::super::error::Trouble;

/// One node's answer to come.
pub(super) type Call<T> = Pin<Box<dyn Future<Output = Result<T, Trouble>> + Send>>;

/// What each node said; none if it said nothing in time.
pub(super) type Said<T> = Vec<Option<Result<T, Trouble>>>;

/// Calls under way. Those that nobody waits for any more go on without: a connection leaves out what stands in line
/// for it once its answer is not wanted, and every node must hear of a release.
pub(super) struct Calls<T: Send + 'static> {
    pending: Vec<Option<Call<T>>>,
    said: Said<T>,
}

impl<T: Send + 'static> Calls<T> {
    pub(super) fn new(calls: impl Iterator<Item = Call<T>>) -> Self {
        let pending: Vec<_> = calls.map(Some).collect();
        let said = pending.iter().map(|_| None).collect();
        Self { pending, said }
    }

    /// Waits until enough is known, all have answered, or the time is over.
    pub(super) async fn until(
        mut self,
        patience: Duration,
        mut enough: impl FnMut(&Said<T>) -> bool + Send,
    ) -> Said<T> {
        let gather = poll_fn(|context| {
            for (call, said) in self.pending.iter_mut().zip(&mut self.said) {
                if let Some(pending) = call
                    && let Poll::Ready(answer) = pending.as_mut().poll(context)
                {
                    *said = Some(answer);
                    *call = None;
                }
            }
            match self.pending.iter().all(Option::is_none) || enough(&self.said) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        // Whoever is silent counts as a node that did not vote.
        let _ = tokio::time::timeout(patience, gather).await;
        std::mem::take(&mut self.said)
    }
}

/// How long calls that nobody waits for are kept: by then they are sent, or the connection is no more.
const KEPT: Duration = Duration::from_secs(10);

impl<T: Send + 'static> Drop for Calls<T> {
    fn drop(&mut self) {
        let left: Vec<_> = self.pending.iter_mut().filter_map(Option::take).collect();
        let runtime = tokio::runtime::Handle::try_current();
        if let (false, Ok(runtime)) = (left.is_empty(), runtime) {
            let rest = async move {
                for call in left {
                    // Sent already, in its place; only the answer is still to come.
                    let _ = call.await;
                }
            };
            drop(runtime.spawn(async move { tokio::time::timeout(KEPT, rest).await.is_ok() }));
        }
    }
}
