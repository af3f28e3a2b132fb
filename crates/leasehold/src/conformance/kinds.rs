//! P2, P12, P18, P21, P24: the kinds of locks.

use std::sync::Arc;
use std::time::Duration;

use super::{Subject, fresh_name};
use crate::engine::Clock;
use crate::error::ErrorKind;

/// P24: a writer goes on as a reader, keeps its fence, lets readers in and writers not.
pub async fn downgrade_lets_readers_in(s: &Subject) {
    if !s.reads().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let writer = a.rwlock(&name).write().await.expect("free");
    let fence = writer.fence();
    let reader = b.rwlock(&name);
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let reader = tokio::spawn(async move { reader.read().await });
    s.waiting(&name, 1).await;
    let mine = writer.downgrade().await.expect("P24: downgraded");
    assert_eq!(mine.fence(), fence, "P24");
    let theirs = s
        .soon("P24: readers come in", reader)
        .await
        .expect("no panic")
        .expect("granted");
    assert!(
        b.rwlock(&name).try_write().await.expect("a try").is_none(),
        "P24: a writer among readers"
    );
    let local = a
        .rwlock(&name)
        .try_read()
        .await
        .expect("a try")
        .expect("P24: readers of the same process too");
    drop((mine, theirs, local));
    drop(
        s.soon("P24: free", b.rwlock(&name).write())
            .await
            .expect("granted"),
    );
    s.idle(&name).await;
}

/// P18: all names or none, whatever order they are given in.
pub async fn multi_is_all_or_none(s: &Subject) {
    let ((a, b), x, y, z) = (s.two().await, fresh_name(), fresh_name(), fresh_name());
    let held = b.mutex(&z).lock().await.expect("free");
    let all = a.multi([&z, &y, &x, &y]);
    assert!(
        all.try_lock().await.expect("a try").is_none(),
        "P18: one of them was held"
    );
    for free in [&x, &y] {
        drop(
            b.mutex(free)
                .try_lock()
                .await
                .expect("a try")
                .expect("P18: none is kept when one is busy"),
        );
    }
    // Long enough that the engine says of each name whether it is free: otherwise that is not known, and an error.
    let waited = all.lock_within(s.lease / 2).await.expect("waited");
    assert!(waited.is_none(), "P18: one deadline for the whole");
    for free in [&x, &y] {
        drop(
            s.soon("P18: given back", b.mutex(free).lock())
                .await
                .expect("granted"),
        );
    }
    let _ = held.release().await.expect("released");
    let guard = s.soon("P18: all free", all.lock()).await.expect("granted");
    assert_eq!(guard.guards().len(), 3, "P18: each name once");
    let _ = guard.release().await.expect("released");
    for name in [&x, &y, &z] {
        s.idle(name).await;
    }
    let bad = a
        .multi(["fine", ""])
        .lock()
        .await
        .expect_err("P13: a bad name");
    assert_eq!(bad.kind(), ErrorKind::Invalid);
}

/// P18: opposite orders never wait for each other.
pub async fn multi_never_deadlocks(s: &Subject) {
    let ((a, b), x, y) = (s.two().await, fresh_name(), fresh_name());
    let mut tasks = tokio::task::JoinSet::new();
    for (client, names) in [(a.clone(), [x.clone(), y.clone()]), (b.clone(), [y, x])] {
        let _ = tasks.spawn(async move {
            for _ in 0..30 {
                let guard = client.multi(&names).lock().await.expect("granted");
                tokio::task::yield_now().await;
                let _ = guard.release().await.expect("released");
            }
        });
    }
    assert_eq!(s.soon("P18: no deadlock", tasks.join_all()).await.len(), 2);
}

/// P7: `run` ends the work's future when the lock is lost, and passes its result otherwise.
pub async fn run_ends_when_lost(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let ran = a.mutex(&name).run(async |_| 7).await;
    assert_eq!(ran.expect("ran"), 7);
    let dropped = Arc::new(());
    let inside = dropped.clone();
    let (tell, begun) = tokio::sync::oneshot::channel();
    let mutex = a.mutex(&name);
    let run = mutex.run(async move |_| {
        let _inside = inside;
        tell.send(()).expect("the evicting task listens");
        std::future::pending::<()>().await;
    });
    let evict = async {
        // Not when the engine shows it: a claim that is evicted before its session has heard of the grant asks again.
        begun.await.expect("the work runs");
        b.evict(&name, "a check").await.expect("evicted")
    };
    let (ran, evicted) = s
        .soon("P7: run ends", async { tokio::join!(run, evict) })
        .await;
    assert_eq!(
        (ran.expect_err("P7: lost").error.kind(), evicted),
        (ErrorKind::Lost, 1)
    );
    assert_eq!(
        Arc::strong_count(&dropped),
        1,
        "P7: the work's future is dropped"
    );
}

/// P21: a minimum hold keeps others out after an early release, and no longer than that.
pub async fn min_hold_keeps_others_out(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let clock = Clock::boot();
    let before = clock.now();
    let hold = Duration::from_millis(300);
    let guard = a.mutex(&name).min_hold(hold).lock().await.expect("free");
    let _ = guard.release().await.expect("released");
    assert!(
        a.mutex(&name).try_lock().await.expect("a try").is_none(),
        "P21: also for its own process"
    );
    let next = s
        .soon("P21: freed afterwards", b.mutex(&name).lock())
        .await
        .expect("granted");
    let took = Duration::from_micros(clock.now() - before);
    assert!(took >= hold, "P21: freed after {took:?}");
    // A task that gets the lock from a neighbour has a minimum of its own.
    let late = b.mutex(&name).min_hold(hold);
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let late = tokio::spawn(async move { late.lock().await });
    let _ = next.release().await.expect("released");
    let late = s
        .soon("P21: served", late)
        .await
        .expect("no panic")
        .expect("granted");
    let before = clock.now();
    let _ = late.release().await.expect("released");
    drop(
        s.soon("P21: freed afterwards", a.mutex(&name).lock())
            .await
            .expect("granted"),
    );
    let took = Duration::from_micros(clock.now() - before);
    assert!(
        took >= hold / 2,
        "P21: a minimum hold was counted from a neighbour's grant: {took:?}"
    );
    s.idle(&name).await;
}

/// P2: what could never be granted is refused before the call waits; so is a lease out of range.
pub async fn permits_out_of_range_are_refused(s: &Subject) {
    let (a, name) = (s.client().await, fresh_name());
    for error in [
        a.semaphore(&name, 3)
            .acquire_many(4)
            .await
            .expect_err("P2: more than there are"),
        a.semaphore(&name, 3)
            .acquire_many(0)
            .await
            .expect_err("P2: none"),
        a.semaphore(&name, 0)
            .acquire()
            .await
            .expect_err("P2: no permits"),
        a.semaphore(&name, u32::MAX)
            .acquire()
            .await
            .expect_err("P2: too many permits"),
        a.mutex(&name)
            .lease(Duration::from_millis(1))
            .lock()
            .await
            .expect_err("a lease of 1 ms"),
        a.mutex(&name)
            .lease(Duration::from_secs(100_000))
            .lock()
            .await
            .expect_err("a lease of a day and more"),
        a.mutex("").lock().await.expect_err("P13: no name"),
        a.mutex("a\nb")
            .lock()
            .await
            .expect_err("P13: a control character"),
        a.mutex("x".repeat(513))
            .lock()
            .await
            .expect_err("P13: too long"),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(!error.may_have_happened(), "{error}");
    }
    assert!(
        s.line(&name).await.is_none(),
        "a refused claim leaves nothing"
    );
}

/// P12: a wait that runs out of time is `None` and leaves no place in line.
pub async fn lock_within_gives_up(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).lock().await.expect("free");
    // Long enough that the engine says that it is busy.
    let mutex = b.mutex(&name);
    let waited = mutex.lock_within(s.lease / 2).await.expect("waited");
    assert!(waited.is_none(), "P12");
    s.waiting(&name, 0).await;
    let _ = held.release().await.expect("released");
    s.idle(&name).await;
}
