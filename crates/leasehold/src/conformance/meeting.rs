//! P31, P32: latches and barriers.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::cancel::{for_every_k, nothing_left, poll_times};
use super::{Subject, fresh_name};
use crate::claim::Mode;
use crate::client::Client;
use crate::engine::{Claim, Identity, Inbox, Standing};
use crate::error::ErrorKind;
use crate::kinds::Passed;
use crate::name::Name;

/// P31: a latch opens for all who wait once it was counted down by all, stays open, and begins anew after a reset.
pub async fn a_latch_opens_for_all_who_wait(s: &Subject) {
    const COUNT: u32 = 6;
    let ((a, b), name) = (s.two().await, fresh_name());
    let counted = Arc::new(AtomicU32::new(0));
    let (mut waits, mut counts) = (tokio::task::JoinSet::new(), tokio::task::JoinSet::new());
    for task in 0..COUNT {
        let client = if task % 2 == 0 { &a } else { &b };
        let (latch, seen) = (client.latch(&name, COUNT), counted.clone());
        let (waits_too, seen_too) = (latch.clone(), counted.clone());
        for (latch, seen) in [(latch.clone(), seen), (waits_too, seen_too)] {
            let _ = waits.spawn(async move {
                latch.wait().await.expect("P31: open");
                assert_eq!(seen.load(Ordering::SeqCst), COUNT, "P31: opened too soon");
            });
        }
        let counted = counted.clone();
        let _ = counts.spawn(async move {
            let _ = counted.fetch_add(1, Ordering::SeqCst);
            latch.count_down().await.expect("P31: counted")
        });
    }
    let mut left = s.soon("P31: all count", counts.join_all()).await;
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2, 3, 4, 5], "P31: each counts once");
    let _ = s.soon("P31: all are told", waits.join_all()).await;
    let latch = b.latch(&name, COUNT);
    assert_eq!(latch.count_down().await.expect("counted"), 0, "P31: open");
    s.soon("P31: it stays open", latch.wait())
        .await
        .expect("open");
    let other = a.latch(&name, 2).count_down().await.expect_err("another");
    assert_eq!(other.kind(), ErrorKind::Conflict, "P31: {other}");
    latch.reset().await.expect("reset");
    assert_eq!(
        a.latch(&name, 2).left().await.expect("read"),
        2,
        "P31: anew"
    );
    let soon = latch.wait_within(Duration::from_millis(20)).await;
    assert!(!soon.expect("read"), "P31: open after a reset");
    let zero = a.latch(&name, 0).wait().await.expect_err("none");
    assert_eq!(zero.kind(), ErrorKind::Invalid, "P31: {zero}");
    s.idle(&format!("latch:{name}")).await;
}

/// P9, P31: a count that is dropped at any await counts at most once, and a wait that is dropped keeps no other from the latch.
pub async fn a_latch_at_every_await(s: &Subject) {
    let (a, b) = s.two().await;
    for_every_k(async |polls| {
        let name = fresh_name();
        let (latch, lock) = (a.latch(&name, 2), format!("latch:{name}"));
        let counted = poll_times(s, latch.count_down(), polls, ready(())).await;
        nothing_left(s, &b, &lock).await;
        let left = latch.left().await.expect("read");
        assert!(left >= 1, "P31: counted twice");
        assert!(counted.is_none() || left == 1, "P31: a count was lost");
        // A clone's wait is dropped while it looks for both.
        let dropped = poll_times(s, latch.clone().wait(), polls.min(3), ready(())).await;
        assert!(dropped.is_none(), "P31: it is not open");
        for _ in 0..left {
            let _ = b.latch(&name, 2).count_down().await.expect("counted");
        }
        s.soon("P31: open", latch.wait()).await.expect("open");
        let reset = poll_times(s, latch.reset(), polls, ready(())).await;
        nothing_left(s, &b, &lock).await;
        counted.is_some() && reset.is_some()
    })
    .await;
}

/// Whether barriers are to be checked: an engine without permits must refuse them.
async fn meets(s: &Subject) -> bool {
    if s.engine().guarantees().shared {
        return true;
    }
    let (client, name) = (s.client().await, fresh_name());
    let refused = client.barrier(&name, 2).arrive().await;
    let refused = refused.expect_err("an engine of mutexes alone");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    false
}

/// P32: no member goes before all have arrived, exactly one is the last, and the barrier can be used again and again.
pub async fn all_arrive_and_all_go(s: &Subject) {
    const COUNT: u32 = 3;
    if !meets(s).await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let arrived = Arc::new(AtomicU32::new(0));
    let mut members = tokio::task::JoinSet::new();
    for member in 0..COUNT {
        let client = if member % 2 == 0 { &a } else { &b };
        let (barrier, arrived) = (client.barrier(&name, COUNT), arrived.clone());
        let _ = members.spawn(async move {
            let mut passed = Vec::new();
            for round in 1..=3 {
                let _ = arrived.fetch_add(1, Ordering::SeqCst);
                passed.push(barrier.arrive().await.expect("P32: all arrive"));
                assert!(
                    arrived.load(Ordering::SeqCst) >= round * COUNT,
                    "P32: too soon"
                );
            }
            passed
        });
    }
    let passed = s.soon("P32: all go", members.join_all()).await;
    for round in 0..3 {
        let round: Vec<Passed> = passed.iter().map(|passed| passed[round]).collect();
        let last = round.iter().filter(|passed| passed.last).count();
        assert_eq!(last, 1, "P32: who came last: {round:?}");
        let same = round
            .iter()
            .all(|passed| passed.generation == round[0].generation);
        assert!(same, "P32: one generation: {round:?}");
    }
    let grow = passed[0]
        .windows(2)
        .all(|two| two[0].generation < two[1].generation);
    assert!(grow, "P32: generations grow: {passed:?}");
    let other = a.barrier(&name, COUNT + 1).arrive().await;
    assert_eq!(
        other.expect_err("another").kind(),
        ErrorKind::Conflict,
        "P32"
    );
    s.idle(&format!("barrier:{name}")).await;
    s.idle(&format!("barrier:{name}#members")).await;
}

/// So many members of the barrier have arrived.
async fn arrived(s: &Subject, name: &str, count: usize) {
    let key = Name::new(format!("barrier:{name}")).expect("a name");
    s.eventually("a member arrives", async || {
        let entry = s.store.get(&key).await.expect("read");
        let text = entry.map(|entry| String::from_utf8(entry.value).expect("text"));
        let fences = text.as_deref().and_then(|text| text.split_once(':'));
        match fences.map_or(0, |(_, fences)| fences.split_whitespace().count()) {
            there if there == count => Ok(()),
            _ => Err(format!("{text:?}")),
        }
    })
    .await;
}

/// The barrier works for two members who arrive now.
async fn works(s: &Subject, [a, b]: [&Client; 2], name: &str, lease: Duration) {
    let [a, b] = [a, b].map(|client| client.barrier(name, 2).lease(lease));
    let both = s.soon("P32: it works again", async {
        tokio::join!(a.arrive(), b.arrive())
    });
    let (ours, theirs) = both.await;
    let generations = (
        ours.expect("gone").generation,
        theirs.expect("gone").generation,
    );
    assert_eq!(generations.0, generations.1, "P32");
}

/// P32: a member that gives up breaks the barrier for those who have arrived; it can be used again.
pub async fn a_member_that_gives_up_breaks_it(s: &Subject) {
    if !meets(s).await {
        return;
    }
    let ((a, b), name) = (s.two().await, fresh_name());
    let lease = s.lease * 6;
    let [ours, theirs] = [&a, &b].map(|client| client.barrier(&name, 3).lease(lease));
    let waits = ours.arrive();
    let gives_up = async {
        arrived(s, &name, 1).await;
        {
            let mut theirs = std::pin::pin!(theirs.arrive());
            tokio::select! {
                passed = &mut theirs => panic!("P32: it went without the third: {passed:?}"),
                () = arrived(s, &name, 2) => {}
            }
        }
    };
    let both = s.soon("P32: told", async { tokio::join!(waits, gives_up) });
    let (broken, ()) = both.await;
    assert_eq!(
        broken.expect_err("P32: one gave up").kind(),
        ErrorKind::Broken,
        "P32"
    );
    let again = fresh_name();
    let early = a.barrier(&again, 2);
    let late = early.arrive_within(Duration::from_millis(50));
    assert_eq!(late.await.expect("P32: gave up"), None, "P32");
    works(s, [&a, &b], &again, lease).await;
    s.idle(&format!("barrier:{name}#members")).await;
}

/// P32: a member that died breaks the barrier: for those who wait, and for those who arrive later and would go without it.
pub async fn a_dead_member_breaks_it(s: &Subject) {
    if !meets(s).await {
        return;
    }
    let (b, c) = s.two().await;
    let (name, lease) = (fresh_name(), s.lease * 2);
    // A session that says nothing any more, with a permit that has joined.
    let who = Identity::of_this_process();
    let silent = s.engine().open(&who, Inbox::new(|_| {})).await;
    let silent = silent.expect("a session");
    let members = Name::new(format!("barrier:{name}#members")).expect("a name");
    let claim = Claim::new(members, Mode::Permits { count: 1, of: 3 }, lease);
    let standing = silent.claim(&claim.tries()).await.expect("claimed");
    let Standing::Held(held) = standing else {
        panic!("free, but {standing:?}")
    };
    let guard = c.mutex(format!("barrier:{name}")).lock().await;
    let guard = guard.expect("free");
    let joined = format!("3 {} 0: {}", guard.fence(), held.fence);
    let put = s
        .store
        .put(guard.name(), guard.fence(), Some(joined.as_bytes()), None);
    assert_eq!(put.await.expect("answered"), Ok(()));
    let _ = guard.release().await.expect("released");
    let [two, three] = [&b, &c].map(|client| client.barrier(&name, 3).lease(lease));
    let waits = s.soon("P32: told of a death", two.arrive()).await;
    assert_eq!(
        waits.expect_err("P32: one is dead").kind(),
        ErrorKind::Broken,
        "P32"
    );
    let late = three.arrive_within(lease / 4).await;
    assert_eq!(
        late.expect("P32: gave up"),
        None,
        "P32: it went with a dead member"
    );
    drop(silent);
}

/// P9, P32: an arrival that is dropped at any await leaves nothing, and the next members meet.
pub async fn an_arrival_at_every_await(s: &Subject) {
    if !meets(s).await {
        return;
    }
    let (a, b) = s.two().await;
    for_every_k(async |polls| {
        let name = fresh_name();
        let alone = a.barrier(&name, 1);
        let passed = poll_times(s, alone.arrive(), polls, ready(())).await;
        s.idle(&format!("barrier:{name}#members")).await;
        nothing_left(s, &b, &format!("barrier:{name}")).await;
        let two = fresh_name();
        let first = a.barrier(&two, 2);
        let dropped = poll_times(s, first.arrive(), polls.min(12), ready(())).await;
        assert!(dropped.is_none(), "P32: it went alone");
        // P9: until then the next member may go with it.
        s.idle(&format!("barrier:{two}#members")).await;
        works(s, [&a, &b], &two, s.lease * 6).await;
        passed.is_some()
    })
    .await;
}
