//! The blocking API: threads instead of tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::blocking::{Client, connect};
use leasehold::engine::Query;
use leasehold::{ErrorKind, OnceError, Ran, Released};

fn client() -> Client {
    connect("memory:").expect("connected")
}

#[test]
fn threads_count_exactly() {
    let (client, counter) = (client(), Arc::new(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let _ = scope.spawn(|| {
                for _ in 0..100 {
                    let guard = client.mutex("counter").lock().unwrap();
                    let seen = counter.load(Ordering::Relaxed);
                    std::thread::yield_now();
                    counter.store(seen + 1, Ordering::Relaxed);
                    assert_eq!(guard.release().unwrap(), Released::Released);
                }
            });
        }
    });
    assert_eq!(counter.load(Ordering::Relaxed), 400);
}

#[test]
fn a_thread_re_enters_and_another_does_not() {
    let client = client();
    let mutex = client.mutex("x").reentrant();
    let outer = mutex.lock().unwrap();
    assert_eq!(mutex.lock().unwrap().fence(), outer.fence());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| mutex.try_lock().unwrap().is_none());
        assert!(other.join().unwrap(), "another thread re-entered");
    });
}

#[test]
fn every_kind_has_its_calls() {
    let client = client();
    let soon = Duration::from_millis(10);
    let writer = client.rwlock("rw").write().unwrap();
    assert!(client.rwlock("rw").try_read().unwrap().is_none());
    assert!(client.rwlock("rw").write_within(soon).unwrap().is_none());
    let reader = writer.downgrade().unwrap();
    assert!(client.rwlock("rw").read_within(soon).unwrap().is_some());
    drop(reader);
    let permits = client.semaphore("s", 3).acquire_many(2).unwrap();
    assert!(
        client
            .semaphore("s", 3)
            .try_acquire_many(2)
            .unwrap()
            .is_none()
    );
    drop(permits);
    let both = client.multi(["a", "b"]).lock().unwrap();
    assert!(client.mutex("a").try_lock().unwrap().is_none());
    assert_eq!(both.release().unwrap(), Released::Released);
    assert_eq!(
        client
            .mutex("a")
            .run(|guard| guard.name().to_string())
            .unwrap(),
        "a"
    );
}

#[test]
fn work_waits_for_a_time_or_not_at_all() {
    let client = client();
    let soon = Duration::from_millis(10);
    let mutex = client.mutex("x");
    let outer = mutex.run(|_| {
        let busy = mutex.run_within(soon, |_| panic!("two at once"));
        (busy, mutex.try_run(|_| panic!("two at once")))
    });
    let (within, tried): (Result<Option<()>, _>, Result<Option<()>, _>) = outer.unwrap();
    assert_eq!((within.unwrap(), tried.unwrap()), (None, None));
    assert_eq!(mutex.run_within(soon, |_| 7).unwrap(), Some(7));
    assert_eq!(mutex.try_run(|_| 8).unwrap(), Some(8));
    // Lost during the work: its result is there all the same.
    let late = mutex.try_run(|_| client.evict("x", "a test").unwrap());
    let late = late.unwrap_err();
    assert_eq!((late.error.kind(), late.done), (ErrorKind::Lost, Some(1)));
    let late = mutex.run_within(soon, |_| client.evict("x", "a test").unwrap());
    let late = late.unwrap_err();
    assert_eq!((late.error.kind(), late.done), (ErrorKind::Lost, Some(1)));
}

#[test]
fn threads_meet_and_load_once() {
    let client = client();
    let (step, done) = (client.barrier("step", 3), client.latch("done", 3));
    #[cfg(feature = "cached")]
    let loads = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let _ = scope.spawn(|| {
                assert!(step.arrive().unwrap().generation > 0);
                #[cfg(feature = "cached")]
                {
                    let load = || {
                        let _ = loads.fetch_add(1, Ordering::Relaxed);
                        Ok::<_, leasehold::Error>(Some(5))
                    };
                    let value = client.cached("x").get_or_load(load).unwrap();
                    assert_eq!(value.as_deref(), Some(&5));
                }
                done.count_down().unwrap()
            });
        }
        assert!(done.wait_within(Duration::from_secs(60)).unwrap());
    });
    #[cfg(feature = "cached")]
    assert_eq!(loads.load(Ordering::Relaxed), 1);
    let early = step.arrive_within(Duration::from_millis(10)).unwrap();
    assert_eq!(early, None);
}

/// Work and loads run on the caller's thread and outside of the background's runtime.
#[test]
fn work_may_lock_and_run_a_runtime_of_its_own() {
    const LONG: Duration = Duration::from_secs(60);
    let client = client();
    let inside = |what: &str| {
        let guard = client.mutex("inner").lock().expect(what);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        assert_eq!(runtime.expect("a runtime").block_on(async { 7 }), 7);
        assert!(client.stock("inner", 2).refill(1).is_ok(), "{what}");
        assert_eq!(guard.release().expect(what), Released::Released);
        Ok::<_, leasehold::Error>("")
    };
    let (least, most) = (
        client.once("a", LONG),
        client.once("b", LONG).at_most_once(),
    );
    for once in [least, most] {
        assert_eq!(once.run(|_| inside("once")).unwrap(), Ran::Done(""));
        once.forget().unwrap();
        let tried = once.try_run(|_| inside("a try of once"));
        assert_eq!(tried.unwrap(), Ran::Done(""));
        let again = once.run(|_| inside("once more")).unwrap();
        assert!(matches!(again, Ran::AlreadyDone(_)), "{again:?}");
    }
    let failed = client.once("c", LONG).run(|_| Err::<&str, _>("failed"));
    assert!(matches!(failed, Err(OnceError::Work("failed"))));
    let led = client.election("e").lead(|_| inside("election")).unwrap();
    assert!(led.is_ok());
    let stripes = client.striped("s", 4);
    let ran = stripes.for_key("k").run(|_| inside("striped")).unwrap();
    assert!(ran.is_ok());
    let ran = stripes.all().run(|_| inside("all stripes")).unwrap();
    assert!(ran.is_ok());
    #[cfg(feature = "cached")]
    for cached in [client.cached("x"), client.cached("x")] {
        let cached = cached.local(Duration::ZERO).early(1.0);
        // A miss loads, and so does a reload.
        for _ in 0..20 {
            let value = cached.get_or_load(|| inside("cached").map(|_| Some(5)));
            assert_eq!(value.unwrap().as_deref(), Some(&5));
        }
    }
}

/// A load that panics leaves no lock and no flight behind.
#[cfg(feature = "cached")]
#[test]
fn a_load_that_panics_keeps_no_other_from_loading() {
    let client = client();
    let cached = client.cached("x");
    let load = || -> Result<Option<u8>, leasehold::Error> { panic!("the load panics") };
    let load = std::panic::AssertUnwindSafe(|| cached.get_or_load(load));
    assert!(std::panic::catch_unwind(load).is_err());
    let again = cached.get_or_load(|| Ok::<_, leasehold::Error>(Some(5)));
    assert_eq!(again.unwrap().as_deref(), Some(&5));
}

#[test]
fn a_dropped_guard_is_given_back_by_the_background() {
    let (one, two) = (
        connect("memory:blocking-drop").unwrap(),
        connect("memory:blocking-drop").unwrap(),
    );
    drop(
        one.mutex("x")
            .lease(Duration::from_secs(600))
            .lock()
            .unwrap(),
    );
    assert!(
        two.mutex("x")
            .lock_within(Duration::from_secs(10))
            .unwrap()
            .is_some()
    );
    // Also when the guard outlives every client.
    let guard = one
        .mutex("x")
        .lease(Duration::from_secs(600))
        .lock_within(Duration::from_secs(10));
    let guard = guard.unwrap().expect("free");
    drop(one);
    assert!(two.mutex("x").try_lock().unwrap().is_none());
    drop(guard);
    assert!(
        two.mutex("x")
            .lock_within(Duration::from_secs(10))
            .unwrap()
            .is_some()
    );
}

#[test]
fn shutdown_and_evict_and_inspect() {
    let client = client();
    let guard = client.mutex("x").lock().unwrap();
    assert_eq!(client.inspect(&Query::all()).unwrap().len(), 1);
    assert_eq!(client.evict("x", "a test").unwrap(), 1);
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(guard.release().unwrap(), Released::WasLost);
    assert_eq!(
        client.shutdown(Duration::from_secs(5)).unwrap().abandoned,
        0
    );
    assert_eq!(
        client.mutex("x").lock().unwrap_err().kind(),
        ErrorKind::Closed
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn where_blocking_is_allowed_it_works() {
    let lock = || {
        let client = connect("memory:").expect("connected");
        let guard = client.mutex("x").lock().expect("locked");
        assert_eq!(guard.release().expect("released"), Released::Released);
    };
    tokio::task::spawn_blocking(lock).await.expect("no panic");
    tokio::task::block_in_place(lock);
    // A runtime that is only entered polls no task.
    let handle = tokio::runtime::Handle::current();
    let entered = std::thread::spawn(move || {
        let _entered = handle.enter();
        lock();
    });
    entered.join().expect("no panic");
}

/// Tokio does not count what such a task does: it cannot be told from a thread.
#[tokio::test]
async fn in_a_task_without_a_budget_it_blocks_and_does_not_panic() {
    let client = tokio::task::unconstrained(async {
        let client = connect("memory:").expect("connected");
        let held = client.mutex("x").lock().expect("locked");
        let soon = Duration::from_millis(10);
        assert!(client.mutex("x").lock_within(soon).unwrap().is_none());
        assert_eq!(held.release().expect("released"), Released::Released);
        client
    });
    let client = client.await;
    let dropped = tokio::task::unconstrained(async move { drop(client) });
    dropped.await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the call is made inside a task")]
async fn inside_a_runtime_it_is_refused_not_a_panic() {
    let inside = tokio::spawn(async { connect("memory:").map(drop) });
    let error = inside.await.expect("no panic").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("spawn_blocking"), "{error}");
    assert_eq!(connect("memory:").unwrap_err().kind(), ErrorKind::Invalid);
    let client = tokio::task::spawn_blocking(|| std::thread::spawn(client).join().unwrap());
    let client = client.await.unwrap();
    assert_eq!(
        client.mutex("x").lock().unwrap_err().kind(),
        ErrorKind::Invalid
    );
}
