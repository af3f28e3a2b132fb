//! How a client ends, and what is given back in the background.

use std::time::Duration;

use leasehold::{ErrorKind, Released};
use leasehold_testkit::faulty::{Fault, Op};

use crate::world::{LEASE, World};

const SOON: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_waits_inside_the_process() {
    let w = World::new().await;
    let guard = w.a.mutex("x").lock().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let mutex = w.a.mutex("x");
            tokio::spawn(async move { mutex.lock().await.map(drop) })
        })
        .collect();
    tokio::time::sleep(SOON).await;
    let shutdown = {
        let a = w.a.clone();
        tokio::spawn(async move { a.shutdown(LEASE).await })
    };
    for wait in waiting {
        let told = tokio::time::timeout(SOON, wait)
            .await
            .expect("told at once");
        assert_eq!(told.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    }
    let refused = w.a.mutex("x").lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    let refused = w.a.mutex("new").try_lock().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Closed);
    tokio::time::timeout(SOON, guard.release_requested())
        .await
        .expect("the holder is asked to finish");
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert_eq!(shutdown.await.unwrap().unwrap().abandoned, 0);
    assert!(w.idle().await);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_a_holder_re_enter_and_a_grant_on_its_way_go() {
    let w = World::new().await;
    let owner = leasehold::Owner::new();
    let mutex = w.a.mutex("x").owner(&owner);
    let outer = mutex.lock().await.unwrap();
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE / 10));
    let other = w.a.mutex("y");
    let (late, shutdown, ()) = tokio::join!(other.lock(), w.a.shutdown(LEASE), async {
        tokio::time::sleep(SOON).await;
        drop(mutex.lock().await.expect("the same hold"));
        assert!(outer.release().await.is_ok());
    });
    assert_eq!(
        late.unwrap_err().kind(),
        ErrorKind::Closed,
        "granted after the shutdown began"
    );
    assert_eq!(shutdown.unwrap().abandoned, 0);
    assert!(w.idle().await);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_of_a_silent_engine_takes_little_longer_than_its_patience() {
    let w = World::new().await;
    let _guard = w.a.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Close, Fault::Hang);
    w.plan.set(Op::Release, Fault::Hang);
    let (start, patience) = (w.clock.now(), Duration::from_secs(1));
    let error = w.a.shutdown(patience).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.may_have_happened());
    let took = w.since(start);
    assert!(took <= patience + Duration::from_millis(600), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn releases_that_hang_keep_no_other_waiting() {
    let w = World::new().await;
    let mut guards = Vec::new();
    for number in 0..200 {
        guards.push(w.a.mutex(format!("hangs:{number}")).lock().await.unwrap());
    }
    let last = w.a.mutex("last").lock().await.unwrap();
    w.plan.set(Op::Release, Fault::Hang);
    drop(guards);
    tokio::time::sleep(SOON).await;
    w.plan.heal();
    let start = w.clock.now();
    drop(last);
    drop(w.b.mutex("last").lock().await.unwrap());
    assert!(w.since(start) < SOON, "{:?}", w.since(start));
    // Each ends with its lease: then a shutdown has nothing left to wait for.
    tokio::time::sleep(LEASE).await;
    let start = w.clock.now();
    assert_eq!(w.a.shutdown(LEASE).await.unwrap().abandoned, 0);
    assert!(w.since(start) < SOON, "{:?}", w.since(start));
}

#[tokio::test(start_paused = true)]
async fn a_background_release_goes_on_after_errors() {
    let w = World::new().await;
    let guard = w.a.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Release, Fault::Refuse);
    drop(guard);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(
        w.plan.calls(Op::Release) >= 3,
        "{}",
        w.plan.calls(Op::Release)
    );
    assert!(w.b.mutex("x").try_lock().await.unwrap().is_none());
    w.plan.heal();
    let start = w.clock.now();
    drop(w.b.mutex("x").lock().await.unwrap());
    assert!(w.since(start) < LEASE / 4, "{:?}", w.since(start));
}

#[tokio::test(start_paused = true)]
async fn lingering_grants_go_with_the_last_client_and_handle() {
    let forever = Duration::from_secs(1_000_000);
    let World {
        a,
        b,
        clock,
        plan,
        engine,
    } = World::new().await;
    let mutex = a.mutex("x").linger(forever);
    assert!(mutex.lock().await.unwrap().release().await.is_ok());
    drop(a);
    assert!(
        b.mutex("x").try_lock().await.unwrap().is_none(),
        "the handle can still use it"
    );
    let guard = mutex.lock().await.unwrap();
    drop(mutex);
    // A guard alone keeps its lock, and nothing lingers after it.
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    assert!(b.mutex("x").try_lock().await.unwrap().is_some());
    drop((clock, plan, engine));
}

#[tokio::test(start_paused = true)]
async fn lingering_grants_are_given_back_when_the_last_client_is_dropped() {
    let World {
        a,
        b,
        clock,
        plan,
        engine,
    } = World::new().await;
    let mutex = a.mutex("x").linger(Duration::from_secs(1_000_000));
    assert!(mutex.lock().await.unwrap().release().await.is_ok());
    drop(mutex);
    assert!(
        b.mutex("x").try_lock().await.unwrap().is_none(),
        "the client can still use it"
    );
    drop(a);
    tokio::time::sleep(SOON).await;
    assert!(b.mutex("x").try_lock().await.unwrap().is_some());
    drop((clock, plan, engine));
}
