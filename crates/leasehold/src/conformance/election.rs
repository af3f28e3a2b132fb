//! P28: elections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Subject, fresh_name};
use crate::error::ErrorKind;

/// P28: one leader at a time, later terms are larger, and each leader is seen by others with its term.
pub async fn one_leader_at_a_time(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let (ours, theirs) = (a.election(&name), b.election(&name));
    let mut leaders = theirs.observe();
    let first = s.soon("P28: told at once", leaders.next()).await;
    assert_eq!(first.expect("read"), None, "P28: no leader yet");
    let mut last = None;
    for election in [&ours, &theirs, &ours] {
        let leadership = s.soon("P28: elected", election.campaign()).await;
        let leadership = leadership.expect("elected");
        assert!(last < Some(leadership.term()), "P28: terms grow");
        last = Some(leadership.term());
        let told = s.soon("P28: observed", leaders.next()).await;
        let told = told.expect("read").expect("P28: there is a leader");
        assert_eq!(Some(told.term), last, "P28: another term was told");
        let seen = ours.leader().await.expect("read");
        assert_eq!(seen.map(|leader| leader.term), last, "P28");
        let _ = leadership.resign().await.expect("resigned");
        let told = s.soon("P28: no leader is told", leaders.next()).await;
        assert_eq!(told.expect("read"), None, "P28: after a resignation");
    }
    s.idle(&name).await;
}

/// P28: a leader that loses its term is ended before the next one begins, and campaigns again.
pub async fn a_leader_that_lost_campaigns_again(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let (leading, terms) = (Arc::new(()), AtomicUsize::new(0));
    let election = a.election(&name);
    let lead = election.lead(async |leadership| {
        let _leading = leading.clone();
        let term = leadership.term();
        if terms.fetch_add(1, Ordering::Relaxed) == 0 {
            let evicted = b.evict(&name, "a check").await.expect("evicted");
            assert_eq!(evicted, 1);
            std::future::pending::<()>().await;
        }
        // The first term's future is gone: this one alone is left.
        (term, Arc::strong_count(&leading))
    });
    let (_, alive) = s.soon("P28: leads again", lead).await.expect("led");
    assert_eq!(terms.load(Ordering::Relaxed), 2, "P28: two terms");
    assert_eq!(alive, 2, "P28: the work of a lost term goes on");
    s.idle(&name).await;
}

/// P28: a shutdown ends the campaign with `Closed`, and a bad name is refused at once.
pub async fn a_campaign_ends_for_good(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = b.election(&name).campaign().await.expect("elected");
    let election = a.election(&name);
    let lead = election.lead(async |_| ());
    let close = async {
        s.waiting(&name, 1).await;
        a.shutdown(s.patience).await.expect("closed")
    };
    let both = s.soon("P28: ended", async { tokio::join!(lead, close) });
    let (led, _) = both.await;
    let error = led.expect_err("P28: the client was shut down");
    assert_eq!(error.kind(), ErrorKind::Closed, "P28: {error}");
    let refused = b.election("").lead(async |_| ()).await;
    let refused = refused.expect_err("P28: no name");
    assert_eq!(refused.kind(), ErrorKind::Invalid, "P28: {refused}");
    let _ = held.resign().await.expect("resigned");
    s.idle(&name).await;
}
