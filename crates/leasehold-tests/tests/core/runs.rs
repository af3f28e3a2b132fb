//! Work under a lock that is waited for a time, or not at all.

use std::time::Duration;

use leasehold::{ErrorKind, RunError};
use leasehold_testkit::faulty::{Fault, Op};

use crate::world::{LEASE, World};

const SOON: Duration = Duration::from_secs(1);

/// What another client's work comes to while a lock of a kind is held, and after that.
macro_rules! busy_then_free {
    ($world:ident, $kind:ident($($arg:expr),*): $run:ident, $run_within:ident, $try_run:ident) => {{
        let (ours, theirs) = ($world.a.$kind($($arg),*), $world.b.$kind($($arg),*));
        let never = async |_: &_| unreachable!("the name is in use");
        let answers = ours.$run(async |_| {
            let start = $world.clock.now();
            let within: Option<()> = theirs.$run_within(SOON, never).await.unwrap();
            assert_eq!($world.since(start), SOON, "it waits for as long as it may");
            let start = $world.clock.now();
            let tried: Option<()> = theirs.$try_run(never).await.unwrap();
            assert_eq!($world.since(start), Duration::ZERO, "a try does not wait");
            (within, tried)
        });
        assert_eq!(answers.await.unwrap(), (None, None), "busy is an answer");
        assert_eq!(theirs.$run_within(SOON, async |_| 7).await.unwrap(), Some(7));
        assert_eq!(theirs.$try_run(async |_| 8).await.unwrap(), Some(8));
        // The runs have given back what they had.
        assert_eq!(ours.$try_run(async |_| 9).await.unwrap(), Some(9));
    }};
}

#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_an_answer_for_every_kind() {
    let w = World::new().await;
    busy_then_free!(w, mutex("m"): run, run_within, try_run);
    busy_then_free!(w, semaphore("s", 1): run, run_within, try_run);
    busy_then_free!(w, multi(["x", "y"]): run, run_within, try_run);
    busy_then_free!(w, rwlock("w"): run_write, run_write_within, try_run_write);
    // Readers share: only a writer keeps them out.
    let readers = w.b.rwlock("r");
    let writer = w.a.rwlock("r").write().await.unwrap();
    let never = async |_: &_| unreachable!("a writer holds it");
    let within: Option<()> = readers.run_read_within(SOON, never).await.unwrap();
    let tried: Option<()> = readers.try_run_read(never).await.unwrap();
    assert_eq!((within, tried), (None, None));
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(readers.try_run_read(async |_| 7).await.unwrap(), Some(7));
    let within = readers.run_read_within(SOON, async |_| 8).await;
    assert_eq!(within.unwrap(), Some(8));
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_result_is_kept_and_a_loss_ends_the_work() {
    let w = World::new().await;
    let (mutex, b) = (w.a.mutex("x"), &w.b);
    let outcome = |failed: RunError<Option<u8>>| (failed.error.kind(), failed.done);
    // Not given back: the engine did not answer. The work was done.
    w.plan.set(Op::Release, Fault::Refuse);
    let failed = mutex.try_run(async |_| Some(7)).await.unwrap_err();
    assert_eq!(outcome(failed), (ErrorKind::Unavailable, Some(Some(7))));
    w.plan.heal();
    let failed = mutex
        .run_within(LEASE * 2, async |_| {
            let _ = b.evict("x", "a test").await;
            Some(8)
        })
        .await
        .unwrap_err();
    assert_eq!(outcome(failed), (ErrorKind::Lost, Some(Some(8))));
    // Lost in the middle: the work is ended.
    let failed = mutex
        .run_within(LEASE, async |_| {
            let _ = b.evict("x", "a test").await;
            std::future::pending().await
        })
        .await
        .unwrap_err();
    assert_eq!(outcome(failed), (ErrorKind::Lost, None));
}

/// An outage is never called busy.
#[tokio::test(start_paused = true)]
async fn an_engine_that_is_silent_is_an_error() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::Hang);
    let never = async |_: &_| unreachable!("nothing was granted");
    let failed: RunError<()> =
        w.a.mutex("x")
            .run_within(SOON, never)
            .await
            .expect_err("no answer");
    assert_eq!(
        (failed.error.kind(), failed.done),
        (ErrorKind::TimedOut, None)
    );
}
