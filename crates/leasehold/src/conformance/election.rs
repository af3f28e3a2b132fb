//! P28: elections.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::cancel::{for_every_k, nothing_left, poll_times};
use super::{Subject, fresh_name};
use crate::engine::Clock;
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

/// P28: a leader shows its own value in each election, and a later one without a value does not show that of an earlier one.
pub async fn a_leader_shows_its_value(s: &Subject) {
    let ((a, b), x, y) = (s.two().await, fresh_name(), fresh_name());
    let mut leaders = b.election(&x).observe();
    let first = s.soon("P28: told at once", leaders.next()).await;
    assert_eq!(first.expect("read"), None, "P28: no leader yet");
    let campaign = async |name: &str, value: &str| {
        let leads = a.election(name).value(value).campaign().await;
        let seen = b.election(name).leader().await.expect("read");
        let seen = seen.expect("P28: there is a leader");
        assert_eq!(seen.value(), Some(value), "P28: what it shows");
        leads.expect("elected")
    };
    let (one, two) = (campaign(&x, "one").await, campaign(&y, "two").await);
    s.eventually("P28: its value is observed", async || {
        let told = leaders.next().await.expect("read");
        match told.as_ref().and_then(|leader| leader.value()) {
            Some("one") => Ok(()),
            _ => Err(format!("{told:?}")),
        }
    })
    .await;
    drop(two);
    let _ = one.resign().await.expect("resigned");
    let plain = b.election(&x).campaign().await.expect("elected");
    let seen = a.election(&x).leader().await.expect("read");
    let seen = seen.expect("P28: there is a leader");
    assert_eq!(seen.term, plain.term(), "P28");
    assert_ne!(seen.value(), Some("one"), "P28: an earlier leader's value");
    let _ = plain.resign().await.expect("resigned");
    s.idle(&x).await;
    s.idle(&y).await;
}

/// P7, P28: by the time another client leads, a leader whose lease was not renewed has lost its term.
pub async fn a_loss_is_told_before_another_leads(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let fixed = a.election(&name).lease(s.lease).keep_alive(false);
    let first = fixed.campaign().await.expect("elected");
    let clock = Clock::boot();
    let theirs = b.election(&name);
    let next = s.soon("P28: the next one leads", theirs.campaign()).await;
    let next = next.expect("elected");
    let lost = first.check().expect_err("P28: two leaders");
    assert_eq!(lost.kind(), ErrorKind::Lost, "P28: {lost}");
    let before = clock.now();
    let lost = s.soon("P28: told", first.lost()).await;
    let took = Duration::from_micros(clock.now() - before);
    assert_eq!(lost.kind(), ErrorKind::Lost, "P28: {lost} after {took:?}");
    assert!(next.term() > first.term(), "P28: terms grow");
    let _ = next.resign().await.expect("resigned");
    s.idle(&name).await;
}

/// P9, P28: a leader that is dropped at any await leads no longer, and what an observer was about to tell is told by the next call.
pub async fn a_lead_at_every_await(s: &Subject) {
    let (a, b) = s.two().await;
    for_every_k(async |polls| {
        let name = fresh_name();
        let election = a.election(&name).value("shown");
        let lead = election.lead(async |leadership| {
            tokio::task::yield_now().await;
            leadership.term()
        });
        let led = poll_times(s, lead, polls, ready(())).await;
        let led = led.map(|led| led.expect("led"));
        nothing_left(s, &b, &name).await;
        let theirs = b.election(&name);
        let leadership = s.soon("P9: another one leads", theirs.campaign()).await;
        let leadership = leadership.expect("elected");
        assert!(led < Some(leadership.term()), "P28: terms grow");
        let mut leaders = a.election(&name).observe();
        let told = match poll_times(s, leaders.next(), polls, ready(())).await {
            Some(told) => told,
            None => s.soon("P9: told by the next call", leaders.next()).await,
        };
        let told = told.expect("read").map(|leader| leader.term);
        assert_eq!(told, Some(leadership.term()), "P9: a leader was not told");
        let _ = leadership.resign().await.expect("resigned");
        led.is_some()
    })
    .await;
}
