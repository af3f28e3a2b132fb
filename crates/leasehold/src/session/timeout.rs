//! Waiting for an engine's answer, but not for ever.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The answer, or none if it does not come within this time.
///
/// The call is polled before there is a timer: engines that are near answer at once, and a timer costs them more
/// than the answer does.
pub(super) async fn within<T>(patience: Duration, call: impl Future<Output = T>) -> Option<T> {
    let mut call = pin!(call);
    let mut late = pin!(None);
    poll_fn(|context| {
        if let Poll::Ready(answer) = call.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        if late.is_none() {
            late.set(Some(tokio::time::sleep(patience)));
        }
        match late.as_mut().as_pin_mut() {
            Some(late) => late.poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_there_needs_no_timer() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let answer = within(Duration::ZERO, std::future::ready(7));
        assert_eq!(runtime.unwrap().block_on(answer), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_until_the_time_is_over() {
        let patience = Duration::from_secs(2);
        let (tell, told) = tokio::sync::oneshot::channel();
        let soon = async {
            tokio::time::sleep(patience / 2).await;
            tell.send(7)
        };
        let (told, _) = tokio::join!(within(patience, told), soon);
        assert_eq!(told, Some(Ok(7)));
        let never = within(patience, std::future::pending::<()>());
        let answer = tokio::time::timeout(patience * 2, never).await;
        assert_eq!(answer, Ok(None));
    }
}
