//! The terms of a request, and work under a lock.

use std::time::Duration;

use leasehold::{ErrorKind, GuardState};
use leasehold_testkit::faulty::{Fault, Op};

use crate::world::{LEASE, World};

#[tokio::test(start_paused = true)]
async fn a_minimum_hold_that_cannot_be_kept_is_refused() {
    let w = World::new().await;
    let mutex = w.a.mutex("x").min_hold(LEASE * 2);
    let fixed = mutex.clone().keep_alive(false);
    for error in [
        fixed.lock().await.map(drop).unwrap_err(),
        fixed.try_lock().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("minimum hold"), "{error}");
    }
    let start = w.clock.now();
    drop(mutex.lock().await.unwrap());
    drop(w.b.mutex("x").lock().await.unwrap());
    assert!(w.since(start) >= LEASE * 2, "{:?}", w.since(start));
}

#[tokio::test(start_paused = true)]
async fn a_minimum_hold_of_a_fixed_lease_is_kept_to_its_end() {
    let w = World::new().await;
    let start = w.clock.now();
    drop(
        w.a.mutex("x")
            .keep_alive(false)
            .min_hold(LEASE)
            .lock()
            .await
            .unwrap(),
    );
    drop(w.b.mutex("x").lock().await.unwrap());
    assert!(w.since(start) >= LEASE, "{:?}", w.since(start));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_takes_no_turn_at_a_renewed_grant() {
    let w = World::new().await;
    let mutex = w.a.mutex("x").linger(LEASE * 10);
    let first = mutex.lock().await.unwrap().fence();
    tokio::time::sleep(LEASE / 4).await;
    let start = w.clock.now();
    let fixed = w.a.mutex("x").keep_alive(false).lock().await.unwrap();
    assert!(fixed.fence() > first);
    let _ = fixed.lost().await;
    let took = w.since(start);
    assert!(took > LEASE * 9 / 10 && took <= LEASE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn no_names_are_refused() {
    let w = World::new().await;
    let none = w.a.multi::<&str>([]);
    let errors = [
        none.lock().await.map(drop).unwrap_err(),
        none.try_lock().await.map(drop).unwrap_err(),
        none.lock_within(LEASE).await.map(drop).unwrap_err(),
    ];
    assert!(
        errors
            .iter()
            .all(|error| error.kind() == ErrorKind::Invalid),
        "{errors:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn several_names_look_at_the_one_lost_meanwhile() {
    let w = World::new().await;
    let held = w.b.mutex("b").lock().await.unwrap();
    let both = w.a.multi(["a", "b"]);
    let (taken, ()) = tokio::join!(both.lock(), async {
        tokio::time::sleep(LEASE / 4).await;
        assert_eq!(w.b.evict("a", "a test").await.unwrap(), 1);
        drop(held);
    });
    assert_eq!(taken.unwrap_err().kind(), ErrorKind::Lost);
    tokio::time::sleep(LEASE / 100).await;
    assert!(w.idle().await, "nothing stays held");
}

#[tokio::test(start_paused = true)]
async fn work_borrows_and_its_result_is_not_thrown_away() {
    let w = World::new().await;
    let (text, mut seen) = ("borrowed".to_owned(), Vec::new());
    let length =
        w.a.mutex("x")
            .run(async |_| {
                seen.push(text.as_str());
                text.len()
            })
            .await;
    assert_eq!(length.unwrap(), 8);
    assert_eq!(seen, ["borrowed"]);
    // Lost after the work: the last thing it did took longer than the lease.
    let clock = &w.clock;
    let late =
        w.a.mutex("x")
            .run(async |_| {
                clock.skip(LEASE * 2);
                7
            })
            .await;
    let late = late.unwrap_err();
    assert_eq!((late.error.kind(), late.done), (ErrorKind::Lost, Some(7)));
    // Not given back: the engine did not answer.
    w.plan.set(Op::Release, Fault::Refuse);
    let failed = w.a.mutex("y").run(async |_| 8).await.unwrap_err();
    assert_eq!(
        (failed.error.kind(), failed.done),
        (ErrorKind::Unavailable, Some(8))
    );
    w.plan.heal();
    // Taken away unheard: only the release says so.
    w.plan.set(Op::Event, Fault::Hang);
    let b = &w.b;
    let taken =
        w.a.mutex("z")
            .run(async |_| b.evict("z", "a test").await.unwrap())
            .await;
    let taken = taken.unwrap_err();
    assert_eq!((taken.error.kind(), taken.done), (ErrorKind::Lost, Some(1)));
    // Lost during the work: that ends it.
    let long =
        w.a.mutex("v")
            .run(async |_| {
                tokio::time::sleep(LEASE).await;
                let _ = b.evict("v", "a test").await;
                std::future::pending::<()>().await;
            })
            .await;
    let ended = long.unwrap_err();
    assert_eq!((ended.error.kind(), ended.done), (ErrorKind::Lost, None));
}

#[tokio::test(start_paused = true)]
async fn work_runs_under_every_kind() {
    let w = World::new().await;
    let (a, b) = (&w.a, &w.b);
    let busy = async |name: &str| {
        b.mutex(name)
            .try_lock()
            .await
            .is_ok_and(|got| got.is_none())
    };
    let mutex = a
        .mutex("m")
        .run(async |guard| (guard.state(), busy("m").await))
        .await;
    assert_eq!(mutex.unwrap(), (GuardState::Valid, true));
    let read = a
        .rwlock("r")
        .run_read(async |_| {
            let shared = b.rwlock("r").try_read().await.unwrap().is_some();
            (shared, b.rwlock("r").try_write().await.unwrap().is_none())
        })
        .await;
    assert_eq!(read.unwrap(), (true, true));
    let write = a
        .rwlock("r")
        .run_write(async |_| b.rwlock("r").try_read().await.unwrap().is_none())
        .await;
    assert!(write.unwrap());
    let permit = a
        .semaphore("s", 1)
        .run(async |_| {
            let none = b.semaphore("s", 1).try_acquire().await;
            none.unwrap().is_none()
        })
        .await;
    assert!(permit.unwrap());
    let both = a
        .multi(["x", "y"])
        .run(async |guard| (guard.guards().len(), busy("x").await && busy("y").await))
        .await;
    assert_eq!(both.unwrap(), (2, true));
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(w.idle().await, "all is given back");
}
