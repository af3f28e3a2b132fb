//! Turns at one grant inside a process: what lingers, and a writer that becomes a reader.

use std::time::Duration;

use leasehold::{ErrorKind, Owner, Released};
use leasehold_testkit::faulty::{Fault, Op};

use crate::world::{LEASE, World};

const SOON: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn an_owner_does_not_write_while_it_becomes_a_reader() {
    let w = World::new().await;
    let owner = Owner::new();
    let lock = w.a.rwlock("x").owner(&owner);
    let writer = lock.write().await.unwrap();
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE / 4));
    let (reader, other, again) = tokio::join!(
        writer.downgrade(),
        async {
            tokio::time::sleep(SOON).await;
            w.b.rwlock("x").read().await.unwrap()
        },
        async {
            tokio::time::sleep(SOON).await;
            let refused = lock.write().await.map(drop).unwrap_err();
            // To read it is the same hold.
            (refused, lock.read().await.unwrap())
        }
    );
    let reader = reader.unwrap();
    assert_eq!(again.0.kind(), ErrorKind::Invalid);
    assert_eq!(again.1.fence(), reader.fence(), "one hold, entered twice");
    drop((reader, again, other));
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_under_an_inner_guard_is_refused() {
    let w = World::new().await;
    let owner = Owner::new();
    let lock = w.a.rwlock("x").owner(&owner);
    let (outer, inner) = (lock.write().await.unwrap(), lock.write().await.unwrap());
    let error = outer.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(
        w.b.rwlock("x").try_read().await.unwrap().is_none(),
        "still the writer"
    );
    assert_eq!(inner.release().await.unwrap(), Released::Released);
    assert!(w.b.rwlock("x").try_read().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_loss_at_a_downgrade_is_told() {
    let w = World::new().await;
    w.plan.set(Op::Event, Fault::Hang);
    let writer = w.a.rwlock("x").write().await.unwrap();
    let signal = writer.loss_signal();
    assert_eq!(w.b.evict("x", "a test").await.unwrap(), 1);
    let error = writer.downgrade().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(signal.is_lost(), "the work is told too");
    tokio::time::sleep(SOON).await;
    assert!(w.idle().await, "the call left no claim behind");
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_that_fails_or_is_dropped_gives_the_lock_back() {
    for fault in [
        Fault::Refuse,
        Fault::LoseReply,
        Fault::HangReply,
        Fault::Hang,
    ] {
        let w = World::new().await;
        let lock = w.a.rwlock("x").linger(LEASE * 10);
        let writer = lock.write().await.unwrap();
        w.plan.set(Op::Claim, fault);
        let failed = tokio::time::timeout(LEASE / 4, writer.downgrade()).await;
        assert!(failed.is_err() || failed.unwrap().is_err(), "{fault:?}");
        w.plan.heal();
        tokio::time::sleep(SOON).await;
        let free = w.b.rwlock("x").try_write().await.unwrap();
        assert!(
            free.is_some(),
            "{fault:?}: it lingers, or was not given back"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_finds_no_grant_that_only_lingers_in_its_way() {
    let w = World::new().await;
    let lock = w.a.rwlock("x").linger(LEASE * 10);
    assert!(lock.write().await.unwrap().release().await.is_ok());
    let reader = lock.try_read().await.unwrap().expect("it only lingers");
    assert!(reader.release().await.is_ok());
    assert!(lock.try_write().await.unwrap().is_some());
    tokio::time::sleep(SOON).await;
    // Another lease, every task for itself: no turn at what lingers, and no wait for it.
    let strict = w.a.rwlock("x").strict();
    assert!(strict.try_write().await.unwrap().is_some());
    // A minimum hold keeps every process out.
    let held = w.a.mutex("y").min_hold(LEASE);
    assert!(held.lock().await.unwrap().release().await.is_ok());
    assert!(w.a.mutex("y").try_lock().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_another_mode_does_not_wait_for_lingering_grants() {
    let w = World::new().await;
    w.plan.set(Op::Event, Fault::Hang);
    let lock = w.a.rwlock("x").linger(LEASE * 10);
    assert!(lock.write().await.unwrap().release().await.is_ok());
    let start = w.clock.now();
    let _reader = lock.read().await.unwrap();
    assert!(w.since(start) < SOON, "{:?}", w.since(start));
}

/// A grant of each kind lingers, and the name is asked for as each other kind, waiting and not.
#[tokio::test(start_paused = true)]
async fn what_lingers_gives_way_to_another_kind() {
    let w = World::new().await;
    let kinds = ["mutex", "readers", "three permits", "two permits"];
    for (first, second) in kinds.iter().flat_map(|a| kinds.map(|b| (*a, b))) {
        let name = format!("{first}, then {second}");
        let mutex = w.a.mutex(&name).linger(LEASE * 10);
        let rwlock = w.a.rwlock(&name).linger(LEASE * 10);
        let [three, two] = [3, 2].map(|of| w.a.semaphore(&name, of).linger(LEASE * 10));
        let lingers = match first {
            "mutex" => mutex.lock().await,
            "readers" => rwlock.read().await,
            "three permits" => three.acquire_many(3).await,
            _ => two.acquire_many(2).await,
        };
        assert!(lingers.unwrap().release().await.is_ok());
        let waited = match second {
            "mutex" => mutex.lock().await,
            "readers" => rwlock.read().await,
            "three permits" => three.acquire().await,
            _ => two.acquire().await,
        };
        let waited = waited.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(waited.release().await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_no_task_could_use_does_not_linger() {
    let w = World::new().await;
    let permits = w.a.semaphore("s", 3).linger(LEASE * 10);
    assert!(
        permits
            .acquire_many(2)
            .await
            .unwrap()
            .release()
            .await
            .is_ok()
    );
    let strict = w.a.mutex("m").strict().linger(LEASE * 10);
    assert!(strict.lock().await.unwrap().release().await.is_ok());
    let fixed = w.a.mutex("f").keep_alive(false).linger(LEASE * 10);
    assert!(fixed.lock().await.unwrap().release().await.is_ok());
    assert!(w.idle().await);
    let mutex = w.a.mutex("m").linger(LEASE * 10);
    assert!(mutex.lock().await.unwrap().release().await.is_ok());
    assert!(!w.idle().await, "a mutex does");
}
