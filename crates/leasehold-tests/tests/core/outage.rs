//! An engine that cannot be reached: every request says so, none says "busy".

use std::time::Duration;

use leasehold::{Error, ErrorKind, Guard, Result};
use leasehold_testkit::faulty::{Fault, Op};
use tokio::task::JoinSet;

use crate::world::{LEASE, World};

const SOON: Duration = Duration::from_millis(10);

/// The answers to six tasks that ask for one name, and when the last of them came.
async fn six<F>(w: &World, ask: impl Fn(leasehold::Mutex) -> F) -> (Vec<F::Output>, Duration)
where
    F: Future<Output: Send> + Send + 'static,
{
    let start = w.clock.now();
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let _ = tasks.spawn(ask(w.a.mutex("x")));
    }
    let told = tasks.join_all().await;
    (told, w.since(start))
}

fn is_outage(error: &Error) -> bool {
    error.is_transient()
}

#[tokio::test(start_paused = true)]
async fn a_limited_wait_never_calls_an_outage_busy() {
    for fault in [
        Fault::Hang,
        Fault::HangReply,
        Fault::Refuse,
        Fault::LoseReply,
    ] {
        let w = World::new().await;
        w.plan.set(Op::Claim, fault);
        w.plan.set(Op::Release, Fault::Refuse);
        let wait = |mutex: leasehold::Mutex| async move { mutex.lock_within(LEASE / 5).await };
        let (told, _) = six(&w, wait).await;
        for answer in told {
            assert!(is_outage(&answer.expect_err("an error")), "{fault:?}");
        }
        let wait = |mutex: leasehold::Mutex| async move { mutex.try_lock().await };
        let (told, _) = six(&w, wait).await;
        for answer in told {
            assert!(is_outage(&answer.expect_err("an error")), "{fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn errors_do_not_queue_up() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::Hang);
    let wait = |mutex: leasehold::Mutex| async move { mutex.lock().await.map(drop) };
    let (told, took) = six(&w, wait).await;
    assert!(told.iter().all(Result::is_err));
    assert!(took <= LEASE + SOON, "{took:?}: one after the other");
    let texts: std::collections::BTreeSet<_> = told
        .iter()
        .map(|told| told.as_ref().unwrap_err().to_string())
        .collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_request_alone_lets_the_next_go() {
    let w = World::new().await;
    let _held = w.b.semaphore("x", 3).acquire().await.unwrap();
    w.plan.set(Op::Claim, Fault::Delay(SOON));
    // The first is refused for its own sake; the second asks for what there is.
    let (mutex, permits) = (w.a.mutex("x"), w.a.semaphore("x", 3));
    let (refused, granted) = tokio::join!(biased; mutex.lock(), permits.acquire());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(granted.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_name_that_is_in_use_is_busy() {
    let w = World::new().await;
    let held = w.b.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Claim, Fault::DelayReply(SOON));
    // All six run out of time at the same moment: one of them waits in the engine's line, the others behind it.
    let wait = |mutex: leasehold::Mutex| async move { mutex.lock_within(LEASE).await };
    let (told, _) = six(&w, wait).await;
    for answer in told {
        assert!(answer.expect("no error").is_none());
    }
    drop(held);
    let _held = w.a.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Claim, Fault::Hang);
    let (told, _) = six(&w, wait).await;
    for answer in told {
        assert!(answer.expect("held by this process").is_none());
    }
    assert!(w.a.mutex("x").try_lock().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_outage_during_the_wait_is_told() {
    let w = World::new().await;
    let _held = w.b.mutex("x").lock().await.unwrap();
    let wait = |mutex: leasehold::Mutex| async move { mutex.lock_within(LEASE).await };
    let (told, ()) = tokio::join!(six(&w, wait), async {
        tokio::time::sleep(SOON).await;
        w.plan.set(Op::Heartbeat, Fault::Hang);
        w.plan.set(Op::Claim, Fault::Hang);
    });
    let busy = told.0.iter().filter(|told| told.is_ok()).count();
    assert_eq!(busy, 0, "{:?}", told.0);
}

#[tokio::test(start_paused = true)]
async fn several_names_are_not_busy_in_an_outage_either() {
    let w = World::new().await;
    let first: Guard = w.b.mutex("a").lock().await.unwrap();
    let none = w.a.multi(["a", "b"]).lock_within(LEASE / 5).await;
    assert!(none.expect("seen in use").is_none());
    drop(first);
    w.plan.set(Op::Claim, Fault::Hang);
    let error = w.a.multi(["a", "b"]).lock_within(LEASE / 5).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
}
