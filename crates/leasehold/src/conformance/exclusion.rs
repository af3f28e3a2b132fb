//! P1 to P3, P13: exclusion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Subject, fresh_name};
use crate::error::ErrorKind;

/// P1: two sessions never hold a mutex at the same time; a release lets the other in.
pub async fn one_holder_at_a_time(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).lock().await.expect("free");
    assert!(
        b.mutex(&name).try_lock().await.expect("a try").is_none(),
        "P1: two holders"
    );
    assert!(
        a.mutex(&name).try_lock().await.expect("a try").is_none(),
        "P1: two holders in one session"
    );
    let _ = held.release().await.expect("released");
    let other = b.mutex(&name).try_lock().await.expect("a try");
    drop(other.expect("P1: not freed by a release"));
    s.idle(&name).await;
}

/// P3: readers hold together, a writer alone.
pub async fn readers_together_writers_alone(s: &Subject) {
    if !s.reads().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let one = a.rwlock(&name).read().await.expect("free");
    let two = b.rwlock(&name).try_read().await.expect("a try");
    let two = two.expect("P3: readers exclude each other");
    assert!(
        b.rwlock(&name).try_write().await.expect("a try").is_none(),
        "P3: a writer among readers"
    );
    let _ = (one.release().await, two.release().await);
    let writer = b
        .rwlock(&name)
        .try_write()
        .await
        .expect("a try")
        .expect("P3: not freed");
    assert!(
        a.rwlock(&name).try_read().await.expect("a try").is_none(),
        "P3: a reader beside a writer"
    );
    assert!(
        a.rwlock(&name).try_write().await.expect("a try").is_none(),
        "P3: two writers"
    );
    drop(writer);
    s.idle(&name).await;
}

/// P2: the permits held never exceed those there are.
pub async fn permits_never_exceed(s: &Subject) {
    if !s.shares().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let two = a.semaphore(&name, 3).acquire_many(2).await.expect("free");
    let one = b.semaphore(&name, 3).acquire().await.expect("one is left");
    assert!(
        a.semaphore(&name, 3)
            .try_acquire()
            .await
            .expect("a try")
            .is_none(),
        "P2: a fourth permit"
    );
    let _ = two.release().await.expect("released");
    assert!(
        a.semaphore(&name, 3)
            .try_acquire_many(3)
            .await
            .expect("a try")
            .is_none(),
        "P2: 1 + 3 of 3"
    );
    let two = a
        .semaphore(&name, 3)
        .try_acquire_many(2)
        .await
        .expect("a try");
    drop((one, two.expect("P2: two are free")));
    s.idle(&name).await;
}

/// P2: another capacity is refused while the name is in use, and welcome afterwards.
pub async fn another_capacity_is_refused(s: &Subject) {
    if !s.shares().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.semaphore(&name, 3).acquire().await.expect("free");
    let (more, mutex) = (b.semaphore(&name, 4), b.mutex(&name));
    let mut refused = vec![
        more.acquire().await.expect_err("P2: another number"),
        mutex.lock().await.expect_err("P2: as a mutex"),
    ];
    if s.engine().guarantees().readers {
        let read = b.rwlock(&name).try_read().await;
        refused.push(read.expect_err("P2: as a read lock"));
    }
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(
            error.to_string().contains("semaphore of 3"),
            "says what is there: {error}"
        );
    }
    let _ = held.release().await.expect("released");
    let again = b
        .semaphore(&name, 4)
        .acquire()
        .await
        .expect("P2: free again");
    drop(again);
    s.idle(&name).await;
}

/// P2: as long as one permit is held the name is refused as a mutex, also while permits come and go.
pub async fn another_kind_is_refused_while_permits_pass(s: &Subject) {
    if !s.shares().await {
        return;
    }
    let ((a, b), c, name) = (s.two().await, s.client().await, fresh_name());
    let mut held = a.semaphore(&name, 2).acquire().await.expect("free");
    let passing = async {
        for round in 0..40 {
            let next = if round % 2 == 0 { &b } else { &a };
            // The name is in use as a mutex too, for as long as that is tried: this claim may be the one that is refused.
            let next = loop {
                match next.semaphore(&name, 2).acquire().await {
                    Ok(next) => break next,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
                }
            };
            let before = std::mem::replace(&mut held, next);
            let _ = before.release().await.expect("released");
        }
    };
    let trying = async {
        loop {
            match c.mutex(&name).try_lock().await {
                Ok(None) => {}
                Ok(Some(guard)) => panic!("P2: {guard:?} beside a permit"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = passing => {}
        () = trying => {}
    }
    drop(held);
    s.idle(&name).await;
}

/// P13: names that look alike are different locks, and every legal name works.
pub async fn names_never_collide(s: &Subject) {
    let (a, base) = (s.client().await, fresh_name());
    let long = "x".repeat(crate::NAME_MAX - base.len() - 1);
    let tails = [
        "", "a", "A", "á", "a\u{301}", "/", "/a", "a/", "..", ".", "%", "%2F", "%2f", "{a}", "{",
        "}", "*", "?", " ", "'", "\"", "\\", ":", "a:b", "`", "$(x)", "漢", "🔒", "ſ", "K",
        "-lock-", "__READ__", &long,
    ];
    let mut held = Vec::new();
    for tail in tails {
        let name = format!("{base}{tail}");
        let guard = a.mutex(&name).try_lock().await.expect("a legal name");
        held.push(guard.unwrap_or_else(|| panic!("P13: {name:?} collides with an earlier name")));
    }
    // The first 32 bits of their digests (SHA-256) are the same. They are the same for every check, too: others may wait.
    for name in ["digest:54743", "digest:63617"] {
        let mutex = a.mutex(name);
        let locked = s.soon("P13: no digest is too short", mutex.lock());
        held.push(locked.await.expect("a legal name"));
    }
    for guard in held {
        let _ = guard.release().await.expect("released");
    }
}

/// P1: tasks of two sessions count on one unprotected counter, and no count is lost.
pub async fn tasks_of_two_clients_count_exactly(s: &Subject) {
    const TASKS: u64 = 8;
    const ROUNDS: u64 = 25;
    let ((a, b), name) = (s.two().await, fresh_name());
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let mutex = if task % 2 == 0 {
            a.mutex(&name)
        } else {
            b.mutex(&name)
        };
        let counter = counter.clone();
        let _ = tasks.spawn(async move {
            for _ in 0..ROUNDS {
                let guard = mutex.lock().await.expect("locked");
                let seen = counter.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                counter.store(seen + 1, Ordering::Relaxed);
                let _ = guard.release().await.expect("released");
            }
        });
    }
    let done = s.soon("P1: all tasks are served", tasks.join_all()).await;
    assert_eq!(done.len() as u64, TASKS);
    assert_eq!(
        counter.load(Ordering::Relaxed),
        TASKS * ROUNDS,
        "P1: lost updates"
    );
    s.idle(&name).await;
}
