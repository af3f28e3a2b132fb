//! Answers and events overtake each other: an event before the answer of its own claim counts, and an answer made before
//! an event and read after it does not undo it.

use std::time::Duration;

use leasehold::engine::Event;
use leasehold::{ErrorKind, GuardState};
use leasehold_testkit::faulty::{Fault, Op};

use crate::world::{LEASE, World};

const SOON: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn an_end_that_overtakes_the_grant_leaves_no_valid_guard() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE / 4));
    let mutex = w.a.mutex("x");
    let (guard, other) = tokio::join!(mutex.lock_within(LEASE / 2), async {
        tokio::time::sleep(SOON).await;
        assert_eq!(w.b.evict("x", "a test").await.unwrap(), 1);
        w.b.mutex("x").lock().await.unwrap()
    });
    assert!(other.check().is_ok());
    let guard = guard.unwrap();
    assert!(guard.is_none(), "two valid guards: {guard:?} and {other:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_counts_also_if_the_grant_was_pushed_after_it() {
    let w = World::new().await;
    let held = w.b.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE / 4));
    let mutex = w.a.mutex("x");
    let (guard, ()) = tokio::join!(mutex.lock(), async {
        tokio::time::sleep(SOON).await;
        // Granted and ended, both before the answer "waiting".
        drop(held);
        tokio::time::sleep(SOON).await;
        assert_eq!(w.b.evict("x", "a test").await.unwrap(), 1);
        w.plan.heal();
    });
    let guard = guard.unwrap();
    assert_eq!(guard.state(), GuardState::Valid);
    let line = w.engine_line("x").await;
    assert_eq!(line.holders[0].fence, Some(guard.fence()), "a new grant");
}

#[tokio::test(start_paused = true)]
async fn an_end_between_a_pushed_grant_and_its_task_is_joined_anew() {
    let w = World::new().await;
    let held = w.b.mutex("x").lock().await.unwrap();
    let (mutex, b) = (w.a.mutex("x"), w.b.clone());
    let waiting = tokio::spawn(async move { mutex.lock().await });
    tokio::time::sleep(SOON).await;
    // On one thread the waiting task runs after both.
    assert!(held.release().await.is_ok());
    assert_eq!(b.evict("x", "a test").await.unwrap(), 1);
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(guard.state(), GuardState::Valid);
}

#[tokio::test(start_paused = true)]
async fn a_wish_that_overtakes_the_grant_counts() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE / 10));
    // No heartbeat tells it again.
    w.plan.set(Op::Heartbeat, Fault::Hang);
    let (mutex, other) = (w.a.mutex("x").linger(LEASE * 10), w.b.mutex("x"));
    let start = w.clock.now();
    let (released, granted) = tokio::join!(
        async { mutex.lock().await.unwrap().release().await },
        async {
            tokio::time::sleep(SOON).await;
            other.lock().await
        }
    );
    assert!(released.is_ok() && granted.is_ok());
    assert!(w.since(start) < LEASE / 2, "{:?}", w.since(start));
}

#[tokio::test(start_paused = true)]
async fn an_old_answer_does_not_take_a_wish_back() {
    let w = World::new().await;
    let mutex = w.a.mutex("x").linger(LEASE * 10);
    let guard = mutex.lock().await.unwrap();
    w.plan.set(Op::Heartbeat, Fault::DelayReply(LEASE / 4));
    let other = w.b.mutex("x");
    // The heartbeat's answer "not wanted" is on its way when the wish comes.
    tokio::time::sleep(LEASE / 3 + LEASE / 8).await;
    assert_eq!(w.plan.calls(Op::Heartbeat), 1, "the answer is on its way");
    let (other, ()) = tokio::join!(other.lock_within(LEASE), async {
        tokio::time::sleep(LEASE / 6).await;
        w.plan.set(Op::Heartbeat, Fault::Hang);
        assert!(guard.release().await.is_ok());
    });
    assert!(other.unwrap().is_some(), "kept although it is wanted");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_overtakes_the_grant_counts() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE / 4));
    let mutex = w.a.mutex("x");
    let (guard, asked) = tokio::join!(mutex.lock(), async {
        tokio::time::sleep(SOON).await;
        w.b.ask_to_release("x").await
    });
    assert_eq!(asked.unwrap(), 1);
    assert!(guard.unwrap().is_release_requested());
}

#[tokio::test(start_paused = true)]
async fn an_old_answer_does_not_take_a_doubt_back() {
    let w = World::new().await;
    let guard = w.a.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Heartbeat, Fault::DelayReply(LEASE / 4));
    tokio::time::sleep(LEASE / 3 + LEASE / 8).await;
    w.plan.tell(&Event::Unsure);
    w.plan.set(Op::Heartbeat, Fault::Refuse);
    tokio::time::sleep(LEASE / 4).await;
    assert_eq!(guard.state(), GuardState::Unsure);
    w.plan.heal();
    tokio::time::sleep(LEASE / 4).await;
    assert_eq!(guard.state(), GuardState::Valid);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_is_not_renewed_by_a_doubt() {
    let w = World::new().await;
    let guard = w.a.mutex("x").keep_alive(false).lock().await.unwrap();
    let start = w.clock.now();
    for _ in 0..4 {
        tokio::time::sleep(LEASE / 5).await;
        w.plan.tell(&Event::Unsure);
        assert_eq!(guard.state(), GuardState::Valid, "no renewal is owed");
    }
    assert_eq!(guard.lost().await.kind(), ErrorKind::Lost);
    assert!(w.since(start) <= LEASE, "{:?}", w.since(start));
    assert_eq!(w.plan.calls(Op::Heartbeat), 0);
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_counts_once_from_its_grant() {
    let w = World::new().await;
    let held = w.b.mutex("x").lock().await.unwrap();
    let mutex = w.a.mutex("x").keep_alive(false);
    let (guard, said) = tokio::join!(mutex.lock(), async {
        tokio::time::sleep(LEASE * 2 + LEASE / 4).await;
        w.plan.set(Op::Heartbeat, Fault::LoseReply);
        let said = w.plan.calls(Op::Heartbeat);
        drop(held);
        said
    });
    let (guard, start) = (guard.unwrap(), w.clock.now());
    let _ = guard.lost().await;
    assert!(w.since(start) <= LEASE, "{:?}", w.since(start));
    assert_eq!(w.plan.calls(Op::Heartbeat), said + 1, "one last word");
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_does_not_cost_a_long_one() {
    let w = World::new().await;
    let long = w.a.mutex("long").lease(Duration::from_secs(3));
    let long = long.lock().await.unwrap();
    let short = w.a.mutex("short").lease(Duration::from_millis(150));
    let short = short.lock().await.unwrap();
    // Longer than the short lease's third, far below the long one's.
    let round_trip = Duration::from_millis(60);
    w.plan.set(Op::Heartbeat, Fault::DelayReply(round_trip));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(
        short.state(),
        GuardState::Lost,
        "it is shorter than it can be kept"
    );
    assert_eq!(long.state(), GuardState::Valid);
}

#[test]
fn a_loss_is_told_when_the_runtime_that_connected_is_gone() {
    let runtime = || {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let lease = Duration::from_secs(600);
    let guard = first.block_on(async {
        let options = leasehold::ConnectOptions::new().lease(lease);
        let client = options.connect("memory:").await.unwrap();
        client.mutex("x").lock().await.unwrap()
    });
    let signal = guard.loss_signal();
    assert!(!signal.is_lost());
    first.shutdown_background();
    let told = second.block_on(async {
        let both = async { tokio::join!(guard.lost(), signal.lost()).0 };
        tokio::time::timeout(Duration::from_secs(10), both).await
    });
    let why = told.expect("told long before the lease ends");
    assert!(why.to_string().contains("runtime"), "{why}");
}

#[test]
fn a_loss_is_told_by_the_clock_while_the_runtime_that_connected_stands_still() {
    let one = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let (still, runs) = (one(), one());
    let guard = still.block_on(async {
        let options = leasehold::ConnectOptions::new().lease(Duration::from_millis(200));
        let client = options.connect("memory:").await.unwrap();
        client.mutex("x").lock().await.unwrap()
    });
    let told =
        runs.block_on(async { tokio::time::timeout(Duration::from_secs(10), guard.lost()).await });
    assert_eq!(told.expect("told").kind(), ErrorKind::Lost);
}

/// Of this process, whatever runtime asks.
fn memory() -> leasehold_tests::Bed {
    let url = |_: &[u16]| "memory:runtimes".to_owned();
    leasehold_tests::Bed::new(env!("CARGO_BIN_EXE_locker"), &[], url)
}

#[test]
fn runtimes_of_callers_may_end() {
    leasehold_tests::runtimes::of_callers_may_end(&memory());
}

#[test]
fn a_client_whose_runtime_is_gone_refuses() {
    leasehold_tests::runtimes::of_the_client_is_gone(&memory());
}
