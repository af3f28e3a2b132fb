//! P15, P16: turns inside a process, and lingering.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::{Subject, fresh_name};
use crate::options::ConnectOptions;
use crate::turns::TurnBound;

/// P15: while no other process wants the name, tasks of one process pass one grant along: one claim, many fences.
pub async fn grants_pass_from_task_to_task(s: &Subject) {
    let (a, name) = (s.client().await, fresh_name());
    let first = a.mutex(&name).lock().await.expect("free");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let mutex = a.mutex(&name);
        let _ = tasks.spawn(async move { mutex.lock().await.expect("a turn").fence() });
    }
    tokio::task::yield_now().await;
    let line = s.line(&name).await.expect("held");
    assert_eq!(
        line.waiters.len(),
        0,
        "P15: local waiters cost the engine nothing: {line:?}"
    );
    let last = first.fence();
    let _ = first.release().await.expect("released");
    let mut fences = s.soon("P15: all are served", tasks.join_all()).await;
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 20, "P6: every turn has its own fence");
    assert!(fences[0] > last, "P6");
    s.idle(&name).await;
}

/// P15: while another process waits, a process with many tasks gives the grant up after its bound. (Where the engine
/// promises no order, any waiter may be served next, but all are served.)
pub async fn turns_are_bounded_while_others_wait(s: &Subject) {
    const BOUND: u32 = 4;
    let name = fresh_name();
    let busy = s
        .client_with(ConnectOptions::new().bound(TurnBound::new(BOUND, Duration::from_secs(60))))
        .await;
    let other = s.client().await;
    let first = busy.mutex(&name).lock().await.expect("free");
    let turns = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..(BOUND * 5) {
        let (mutex, turns) = (busy.mutex(&name), turns.clone());
        let _ = tasks.spawn(async move {
            let guard = mutex.lock().await.expect("a turn");
            let _ = turns.fetch_add(1, Ordering::SeqCst);
            let _ = guard.release().await.expect("released");
        });
    }
    let waiter = other.mutex(&name);
    let seen = turns.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let waiter = tokio::spawn(async move {
        let guard = waiter.lock().await.expect("granted");
        let turns = seen.load(Ordering::SeqCst);
        let _ = guard.release().await.expect("released");
        turns
    });
    s.heard(&first).await;
    let _ = first.release().await.expect("released");
    let passed = s
        .soon("P15: the other process is served", waiter)
        .await
        .expect("no panic");
    assert!(
        passed <= BOUND || !s.engine().guarantees().ordered,
        "P15: {passed} turns passed it, the bound is {BOUND}"
    );
    let served = s.soon("P15: and so are all tasks", tasks.join_all()).await;
    assert_eq!(served.len() as u32, BOUND * 5);
    s.idle(&name).await;
}

/// P15: the bound's time counts as well as its turns.
pub async fn turns_are_bounded_in_time(s: &Subject) {
    let (name, hold) = (fresh_name(), Duration::from_millis(10));
    let bound = TurnBound::new(1_000_000, Duration::from_millis(40));
    let busy = s.client_with(ConnectOptions::new().bound(bound)).await;
    let other = s.client().await;
    let first = busy.mutex(&name).lock().await.expect("free");
    let turns = Arc::new(AtomicU32::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let (mutex, turns) = (busy.mutex(&name), turns.clone());
        let _ = tasks.spawn(async move {
            let _guard = mutex.lock().await.expect("a turn");
            let _ = turns.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(hold).await;
        });
    }
    let (waiter, seen) = (other.mutex(&name), turns.clone());
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let waiter = tokio::spawn(async move {
        let _guard = waiter.lock().await.expect("granted");
        seen.load(Ordering::SeqCst)
    });
    s.heard(&first).await;
    let _ = first.release().await.expect("released");
    let passed = s
        .soon("P15: the other process is served", waiter)
        .await
        .expect("no panic");
    assert!(
        passed <= 8 || !s.engine().guarantees().ordered,
        "P15: {passed} turns of 10 ms passed it, the bound is 40 ms"
    );
    assert_eq!(
        s.soon("P15: all are served", tasks.join_all()).await.len(),
        60
    );
    s.idle(&name).await;
}

/// P15: readers of one process share one claim.
pub async fn readers_share_one_claim(s: &Subject) {
    if !s.reads().await {
        return;
    }
    let (a, name) = (s.client().await, fresh_name());
    let lock = a.rwlock(&name);
    let (one, two, three) = (lock.read().await, lock.read().await, lock.read().await);
    let (one, two, three) = (one.expect("read"), two.expect("read"), three.expect("read"));
    let line = s.line(&name).await.expect("held");
    assert_eq!(line.holders.len(), 1, "P15: {line:?}");
    assert!(
        one.fence() < two.fence() && two.fence() < three.fence(),
        "P6"
    );
    let _ = one.release().await.expect("released");
    assert_eq!(s.line(&name).await.expect("still read").holders.len(), 1);
    drop((two, three));
    s.idle(&name).await;
}

/// P15: while a writer of another process waits, readers of this one share their grant only within the bound.
pub async fn shared_reads_are_bounded(s: &Subject) {
    if !s.reads().await {
        return;
    }
    const BOUND: u32 = 4;
    let name = fresh_name();
    let options = ConnectOptions::new().bound(TurnBound::new(BOUND, Duration::from_secs(60)));
    let (busy, other) = (s.client_with(options).await, s.client().await);
    let first = busy.rwlock(&name).read().await.expect("free");
    let writer = other.rwlock(&name);
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let writer = tokio::spawn(async move { writer.write().await });
    s.waiting(&name, 1).await;
    s.heard(&first).await;
    let mut readers = vec![first];
    while let Some(reader) = busy.rwlock(&name).try_read().await.expect("a try") {
        readers.push(reader);
        assert!(
            readers.len() <= BOUND as usize,
            "P15: {} readers share it, the bound is {BOUND}",
            readers.len()
        );
    }
    let late = s.client().await;
    assert!(
        late.rwlock(&name)
            .try_read()
            .await
            .expect("a try")
            .is_none(),
        "P4: passed a waiting writer"
    );
    drop(readers);
    drop(
        s.soon("P3: the writer is served", writer)
            .await
            .expect("no panic")
            .expect("granted"),
    );
    s.idle(&name).await;
}

/// P16: a lingering grant is given up at once when another process asks, long before its time.
pub async fn linger_is_given_up_when_wanted(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let mutex = a
        .mutex(&name)
        .linger(Duration::from_secs(600))
        .lease(Duration::from_secs(30));
    let _ = mutex
        .lock()
        .await
        .expect("free")
        .release()
        .await
        .expect("released");
    assert_eq!(
        s.line(&name).await.expect("P16: it lingers").holders.len(),
        1
    );
    let other = b.mutex(&name).lease(Duration::from_secs(30));
    let clock = crate::engine::Clock::boot();
    let before = clock.now();
    let guard = s
        .soon("P16: given up when wanted", other.lock())
        .await
        .expect("granted");
    let took = Duration::from_micros(clock.now() - before);
    assert!(
        took < Duration::from_secs(5),
        "P16: took {took:?}: by heartbeat, not at once"
    );
    drop(guard);
    s.idle(&name).await;
}

/// How much later another claim is made than the one that lingers: more than two looks at it may be apart.
const APART: Duration = Duration::from_millis(100);

/// P16: the same process has it again under the same claim, with a new fence, and it ends by itself.
pub async fn linger_is_reused(s: &Subject) {
    let (a, name) = (s.client().await, fresh_name());
    let mutex = a.mutex(&name).linger(Duration::from_secs(1));
    let first = mutex.lock().await.expect("free");
    let fence = first.fence();
    let _ = first.release().await.expect("released");
    let since = s.line(&name).await.expect("P16: it lingers").holders[0].since;
    // Another claim would have joined so much later.
    tokio::time::sleep(APART).await;
    let second = mutex.lock().await.expect("at once");
    assert!(second.fence() > fence, "P6");
    let now = s.line(&name).await.expect("held").holders[0].since;
    let apart = now
        .duration_since(since)
        .or_else(|_| since.duration_since(now))
        .unwrap_or_default();
    assert!(apart < APART, "P16: another claim, {apart:?} apart");
    drop(second);
    s.idle(&name).await;
}
