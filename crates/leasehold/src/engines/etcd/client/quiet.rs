//! Whether a member answers: a new claim is not asked for while nothing is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Clock, micros};

/// With requests under way and no answer for so long, a member is quiet.
const QUIET: Duration = Duration::from_millis(100);

/// The requests under way on a connection, and when it was last heard.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    under_way: AtomicUsize,
    heard: AtomicU64,
    answered: Notify,
}

/// One request under way.
pub(super) struct UnderWay(Arc<Traffic>);

impl Traffic {
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        if self.under_way.fetch_add(1, Ordering::AcqRel) == 0 {
            self.heard.store(Clock::boot().now(), Ordering::Release);
        }
        UnderWay(self.clone())
    }

    fn is_quiet(&self) -> bool {
        let quiet = self.heard.load(Ordering::Acquire) + micros(QUIET);
        self.under_way.load(Ordering::Acquire) > 0 && quiet < Clock::boot().now()
    }

    /// Waits while the member is quiet. The caller watches the connection.
    pub(super) async fn heard(&self) {
        while self.is_quiet() {
            let answered = self.answered.notified();
            if self.is_quiet() {
                answered.await;
            }
        }
    }
}

impl UnderWay {
    pub(super) fn answered(&self) {
        self.0.heard.store(Clock::boot().now(), Ordering::Release);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let _ = self.0.under_way.fetch_sub(1, Ordering::AcqRel);
        self.0.answered.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_member_is_quiet_until_it_answers() {
        let traffic = Arc::new(Traffic::default());
        traffic.heard().await;
        let one = traffic.begin();
        traffic.heard().await;
        tokio::time::sleep(QUIET * 3 / 2).await;
        assert!(tokio::time::timeout(QUIET, traffic.heard()).await.is_err());
        one.answered();
        traffic.heard().await;
        tokio::time::sleep(QUIET * 3 / 2).await;
        assert!(traffic.is_quiet());
        drop(one);
        traffic.heard().await;
    }
}
