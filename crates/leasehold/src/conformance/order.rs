//! P4, P12: order.

use std::sync::{Arc, Mutex};

use super::{Subject, fresh_name};
use crate::client::Client;

/// Starts a waiter and returns once it stands in the engine's line.
async fn queue<F, T>(s: &Subject, name: &str, behind: usize, wait: F) -> tokio::task::JoinHandle<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let task = tokio::spawn(wait);
    s.waiting(name, behind + 1).await;
    task
}

/// P4: sessions are served in the order in which they joined the line.
pub async fn first_come_first_served(s: &Subject) {
    let (first, name) = (s.client().await, fresh_name());
    let held = first.mutex(&name).lock().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for turn in 0..5 {
        let (client, served, line) = (s.client().await, served.clone(), name.clone());
        let wait = async move {
            let guard = client.mutex(&line).lock().await.expect("served");
            served.lock().expect("no panic").push(turn);
            let _ = guard.release().await.expect("released");
        };
        tasks.push(queue(s, &name, turn, wait).await);
    }
    let _ = held.release().await.expect("released");
    for task in tasks {
        s.soon("P4: every waiter is served", task)
            .await
            .expect("no panic");
    }
    assert_eq!(s.in_order(&served), [0, 1, 2, 3, 4], "P4: out of order");
}

/// P3, P4: a reader that comes after a waiting writer waits behind it.
pub async fn a_waiting_writer_is_not_passed(s: &Subject) {
    if !s.reads().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let reader = a.rwlock(&name).read().await.expect("free");
    let lock = b.rwlock(&name);
    let writer = queue(s, &name, 0, async move { lock.write().await }).await;
    let late = s.client().await;
    assert!(
        late.rwlock(&name)
            .try_read()
            .await
            .expect("a try")
            .is_none(),
        "P4: passed a waiting writer"
    );
    let _ = reader.release().await.expect("released");
    let writer = s
        .soon("P3: the writer is served", writer)
        .await
        .expect("no panic")
        .expect("served");
    drop(writer);
    s.idle(&name).await;
}

/// P3: a writer that gives up its wait lets no claim in behind it: a reader still waits for the writer that holds.
pub async fn a_writer_that_leaves_lets_no_claim_in(s: &Subject) {
    if !s.reads().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.rwlock(&name).write().await.expect("free");
    let lock = b.rwlock(&name);
    let leaver = queue(s, &name, 0, async move { lock.write().await }).await;
    let lock = s.client().await.rwlock(&name);
    let reader = queue(s, &name, 1, async move { lock.read().await }).await;
    leaver.abort();
    s.waiting(&name, 1).await;
    held.check().expect("P3: it is still held");
    let mut reader = std::pin::pin!(reader);
    let early = tokio::time::timeout(s.lease / 4, &mut reader).await;
    assert!(early.is_err(), "P3: a reader came in beside a writer");
    let _ = held.release().await.expect("released");
    drop(
        s.soon("P3: the reader is served", reader)
            .await
            .expect("no panic")
            .expect("served"),
    );
    s.idle(&name).await;
}

/// P4: a claim for many permits is not passed by one for few.
pub async fn a_heavy_claim_is_not_passed(s: &Subject) {
    if !s.shares().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let one = a.semaphore(&name, 3).acquire().await.expect("free");
    let heavy = b.semaphore(&name, 3);
    let heavy = queue(s, &name, 0, async move { heavy.acquire_many(3).await }).await;
    let light: Client = s.client().await;
    assert!(
        light
            .semaphore(&name, 3)
            .try_acquire()
            .await
            .expect("a try")
            .is_none(),
        "P4: passed a heavy claim"
    );
    let _ = one.release().await.expect("released");
    drop(
        s.soon("P4: the heavy claim is served", heavy)
            .await
            .expect("no panic")
            .expect("served"),
    );
    s.idle(&name).await;
}

/// P12: a try answers at once and leaves no place in line.
pub async fn a_try_never_joins(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).lock().await.expect("free");
    for _ in 0..3 {
        assert!(
            b.mutex(&name).try_lock().await.expect("a try").is_none(),
            "P12: busy is None"
        );
    }
    let line = s.line(&name).await.expect("it is held");
    assert_eq!(
        line.waiters.len(),
        0,
        "P12: a try joined the line: {line:?}"
    );
    let _ = held.release().await.expect("released");
    s.idle(&name).await;
}

/// P4, P15: with `strict`, tasks of two sessions are served in the order of arrival, one by one.
pub async fn strict_tasks_go_in_order_across_sessions(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).strict().lock().await.expect("free");
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for turn in 0..6 {
        let client = if turn % 2 == 0 { a.clone() } else { b.clone() };
        let (served, line) = (served.clone(), name.clone());
        let wait = async move {
            let guard = client.mutex(&line).strict().lock().await.expect("served");
            served.lock().expect("no panic").push(turn);
            let _ = guard.release().await.expect("released");
        };
        tasks.push(queue(s, &name, turn, wait).await);
    }
    let _ = held.release().await.expect("released");
    for task in tasks {
        s.soon("P4: every task is served", task)
            .await
            .expect("no panic");
    }
    assert_eq!(
        s.in_order(&served),
        [0, 1, 2, 3, 4, 5],
        "P4: strict order broken"
    );
}
