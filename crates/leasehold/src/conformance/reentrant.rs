//! P17: taking a lock again.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{Subject, fresh_name};
use crate::error::ErrorKind;
use crate::turns::Owner;

/// P17: the task that holds takes it again at the same fence; another task does not; the last release frees.
pub async fn reentrant_by_task(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let mutex = a.mutex(&name).reentrant();
    let outer = mutex.lock().await.expect("free");
    let inner = mutex.lock().await.expect("P17: re-entered");
    let tried = mutex
        .try_lock()
        .await
        .expect("a try")
        .expect("P17: re-entered by a try");
    assert_eq!(
        (inner.fence(), tried.fence()),
        (outer.fence(), outer.fence()),
        "P17: one fence per hold"
    );
    let other = mutex.clone();
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let other = tokio::spawn(async move { other.try_lock().await.expect("a try").is_some() });
    assert!(
        !other.await.expect("no panic"),
        "P17: another task re-entered"
    );
    let _ = outer.release().await.expect("released");
    drop(tried);
    assert!(
        b.mutex(&name).try_lock().await.expect("a try").is_none(),
        "P17: freed before the last release"
    );
    let _ = inner.release().await.expect("released");
    drop(
        s.soon("P17: freed by the last release", b.mutex(&name).lock())
            .await
            .expect("granted"),
    );
    s.idle(&name).await;
}

/// P17: two branches of one `join!` are one task, so a re-entrant lock does not exclude them from each other; an
/// ordinary one does.
pub async fn join_branches_are_one_task(s: &Subject) {
    let (a, name) = (s.client().await, fresh_name());
    let inside = AtomicU32::new(0);
    let most = AtomicU32::new(0);
    let branch = |mutex: crate::Mutex| {
        let (inside, most) = (&inside, &most);
        async move {
            let guard = mutex.lock().await.expect("locked");
            let _ = most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Long enough for the other branch to come in, if it may.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            let _ = inside.fetch_sub(1, Ordering::SeqCst);
            let _ = guard.release().await.expect("released");
        }
    };
    // The second asks once the first holds: until then it waits behind it like any other owner.
    let second = async {
        while inside.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        branch(a.mutex(&name).reentrant()).await;
    };
    let _ = tokio::join!(branch(a.mutex(&name).reentrant()), second);
    assert_eq!(
        most.swap(0, Ordering::SeqCst),
        2,
        "P17: documented: branches of a join are one owner"
    );
    let _ = tokio::join!(branch(a.mutex(&name)), branch(a.mutex(&name)));
    assert_eq!(
        most.load(Ordering::SeqCst),
        1,
        "P1: an ordinary mutex excludes them"
    );
    let (one, two) = (Owner::new(), Owner::new());
    most.store(0, Ordering::SeqCst);
    let _ = tokio::join!(
        branch(a.mutex(&name).owner(&one)),
        branch(a.mutex(&name).owner(&two))
    );
    assert_eq!(
        most.load(Ordering::SeqCst),
        1,
        "P17: so do owners of their own"
    );
}

/// P17: an explicit owner re-enters from any task; another owner does not.
pub async fn reentrant_by_owner(s: &Subject) {
    let (a, name) = (s.client().await, fresh_name());
    let (me, other) = (Owner::new(), Owner::new());
    let outer = a.mutex(&name).owner(&me).lock().await.expect("free");
    assert!(
        a.mutex(&name)
            .owner(&other)
            .try_lock()
            .await
            .expect("a try")
            .is_none(),
        "P17: another owner"
    );
    assert!(
        a.mutex(&name)
            .reentrant()
            .try_lock()
            .await
            .expect("a try")
            .is_none(),
        "P17: the task is not the owner"
    );
    let mutex = a.mutex(&name).owner(&me);
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let inner = tokio::spawn(async move { mutex.lock().await })
        .await
        .expect("no panic")
        .expect("P17: travels");
    assert_eq!(inner.fence(), outer.fence(), "P17");
    drop((outer, inner));
    s.idle(&name).await;
}

/// P17: a writer may read and write again, a reader may read again even behind a waiting writer, and a reader that
/// asks to write is refused instead of waiting for itself.
pub async fn reentrant_read_write(s: &Subject) {
    if !s.reads().await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let lock = a.rwlock(&name).reentrant();
    let writer = lock.write().await.expect("free");
    let again = lock.write().await.expect("P17: write in write");
    let reader = lock.read().await.expect("P17: read in write");
    assert_eq!(
        (again.fence(), reader.fence()),
        (writer.fence(), writer.fence()),
        "P17"
    );
    let deep = again
        .downgrade()
        .await
        .expect_err("P24: the outer guard would still mean to write");
    assert_eq!(deep.kind(), ErrorKind::Invalid, "{deep}");
    assert!(
        b.rwlock(&name).try_read().await.expect("a try").is_none(),
        "P24: a refused downgrade let a reader in"
    );
    drop((writer, reader));
    let reader = s.soon("free", lock.read()).await.expect("free");
    let writer = b.rwlock(&name);
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let writer = tokio::spawn(async move { writer.write().await });
    s.waiting(&name, 1).await;
    let again = s
        .soon("P17: a reader re-enters past a waiting writer", lock.read())
        .await
        .expect("re-entered");
    let refused = s
        .soon("P17: an upgrade is refused at once", lock.write())
        .await
        .expect_err("P17: an upgrade");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "{refused}");
    drop((reader, again));
    drop(
        s.soon("the writer", writer)
            .await
            .expect("no panic")
            .expect("granted"),
    );
    s.idle(&name).await;
}
