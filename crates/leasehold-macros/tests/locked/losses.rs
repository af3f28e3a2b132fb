//! A lock that is lost while the body runs.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use leasehold::{Client, locked};

use crate::{Problem, client};

/// Notes that it was dropped.
struct Noted<'a>(&'a AtomicBool);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

async fn evict(locks: &Client) {
    let ended = locks.evict("x", "a test").await;
    assert_eq!(ended.expect("memory answers"), 1);
}

#[locked(locks, "x")]
async fn never_ends(locks: &Client, dropped: &AtomicBool) -> Result<u8, Problem> {
    let _noted = Noted(dropped);
    evict(locks).await;
    std::future::pending().await
}

#[locked(locks, "x", lost = drop)]
async fn never_ends_either(locks: &Client, dropped: &AtomicBool) -> Result<u8, Problem> {
    let _noted = Noted(dropped);
    evict(locks).await;
    std::future::pending().await
}

#[tokio::test]
async fn a_loss_ends_the_body() {
    let locks = client().await;
    let dropped = AtomicBool::new(false);
    assert!(never_ends(&locks, &dropped).await.unwrap_err().is_lost());
    assert!(dropped.swap(false, Relaxed));
    let ended = never_ends_either(&locks, &dropped).await;
    assert!(ended.unwrap_err().is_lost() && dropped.load(Relaxed));
}

#[locked(locks, "x", lost = finish)]
async fn finishes(locks: &Client, done: &AtomicU8, fails: bool) -> Result<u8, Problem> {
    evict(locks).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
        let _ = done.fetch_add(1, Relaxed);
    }
    if fails {
        return Err(Problem::Body);
    }
    Ok(7)
}

#[tokio::test]
async fn a_body_that_finishes_is_told_of_the_loss_after_it() {
    let locks = client().await;
    let done = AtomicU8::new(0);
    let lost = finishes(&locks, &done, false).await.unwrap_err();
    assert!(lost.is_lost() && done.load(Relaxed) == 10, "{lost:?}");
    // Its own error says more.
    let failed = finishes(&locks, &done, true).await.unwrap_err();
    assert!(matches!(failed, Problem::Body) && done.load(Relaxed) == 20);
}

#[locked(locks, "x")]
async fn fails(locks: &Client) -> Result<u8, Problem> {
    Err(Problem::Body)?
}

#[tokio::test]
async fn the_bodys_error_is_the_functions_and_the_lock_is_free() {
    let locks = client().await;
    assert!(matches!(fails(&locks).await, Err(Problem::Body)));
    assert!(!crate::is_busy(&locks, "x").await);
}

#[locked(locks, "x")]
async fn waits_for_ever(locks: &Client, dropped: &AtomicBool) -> Result<u8, Problem> {
    let _noted = Noted(dropped);
    std::future::pending().await
}

#[tokio::test]
async fn a_dropped_call_drops_the_body_and_gives_the_lock_back() {
    let locks = client().await;
    let dropped = AtomicBool::new(false);
    let mut call = Box::pin(waits_for_ever(&locks, &dropped));
    let begun = std::future::poll_fn(|context| {
        assert!(call.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    });
    begun.await;
    assert!(crate::is_busy(&locks, "x").await, "the body has the lock");
    drop(call);
    assert!(dropped.load(Relaxed));
    let free = locks.mutex("x").lock_within(Duration::from_secs(30)).await;
    assert!(free.unwrap().is_some());
}
