//! The same request to several nodes, and as many answers as are needed.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use super::super::error::Trouble;

/// One node's answer to come.
pub(super) type Call<T> = Pin<Box<dyn Future<Output = Result<T, Trouble>> + Send>>;

/// The answer of each node; none if it gave none in time.
pub(super) type Said<T> = Vec<Option<Result<T, Trouble>>>;

/// Calls under way. A request is in the queue of its connection after the first poll, and comes to the node also when
/// the answer is not waited for any more.
pub(super) struct Calls<T> {
    pending: Vec<Option<Call<T>>>,
    said: Said<T>,
}

impl<T> Calls<T> {
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
        // A silent node counts as one that did not vote.
        let _ = tokio::time::timeout(patience, gather).await;
        self.said
    }
}
