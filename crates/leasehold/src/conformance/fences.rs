//! P6: fences only grow.

use super::{Subject, fresh_name};

/// P6: over turns of one session, over sessions, over kinds of end.
pub async fn grow_over_turns_and_grants(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let mut last = 0;
    for round in 0..40 {
        let client = if round % 3 == 0 { &b } else { &a };
        let guard = s
            .soon("P1: free again", client.mutex(&name).lock())
            .await
            .expect("locked");
        let fence = guard.fence().get();
        assert!(fence > last, "P6: {fence} after {last} in round {round}");
        assert!(
            i64::try_from(fence).is_ok(),
            "P6: {fence} does not fit a signed column"
        );
        last = fence;
        match round % 4 {
            0 => drop(guard),
            1 => {
                let _ = a.evict(&name, "a check").await.expect("evicted");
            }
            _ => {
                let _ = guard.release().await.expect("released");
            }
        }
    }
    s.idle(&name).await;
}

/// P6: also when the engine has forgotten the idle name, and for another session.
pub async fn grow_over_idle_times(s: &Subject) {
    let name = fresh_name();
    let mut last = 0;
    for _ in 0..5 {
        let client = s.client().await;
        let guard = client.mutex(&name).lock().await.expect("free");
        assert!(
            guard.fence().get() > last,
            "P6: {} after {last}",
            guard.fence()
        );
        last = guard.fence().get();
        let _ = guard.release().await.expect("released");
        let left = client.shutdown(s.patience).await.expect("closed");
        assert_eq!(left.abandoned, 0);
        s.idle(&name).await;
    }
}

/// P6: at a rate of grants that runs ahead of any clock, with tasks sharing the grant.
pub async fn survive_many_quick_grants(s: &Subject) {
    let (a, name) = (s.client().await, fresh_name());
    let mutex = a.mutex(&name);
    let mut last = 0;
    for round in 0..1000 {
        let guard = mutex.lock().await.expect("free");
        assert!(
            guard.fence().get() > last,
            "P6: {} after {last} in round {round}",
            guard.fence()
        );
        last = guard.fence().get();
        let _ = guard.release().await.expect("released");
    }
    if !s.reads().await {
        return;
    }
    let lock = a.rwlock(fresh_name());
    let mut seen = std::collections::BTreeSet::new();
    let mut readers = Vec::new();
    for _ in 0..600 {
        let reader = lock.read().await.expect("readers share");
        assert!(
            seen.insert(reader.fence()),
            "P6: fence {} twice",
            reader.fence()
        );
        readers.push(reader);
    }
}
