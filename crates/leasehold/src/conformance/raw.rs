//! P12, P20, P23: the engine's own operations, without a client around them.

use std::sync::Arc;
use std::time::Duration;

use super::{Subject, fresh_name};
use crate::engine::{Claim, Identity, Inbox, Mode, Release, Session, Standing};
use crate::name::Name;
use crate::sync::Shared;

async fn session(s: &Subject) -> Arc<dyn Session> {
    let opened = s
        .engine()
        .open(&Identity::of_this_process(), Inbox::new(|_| {}))
        .await;
    opened.expect("a session opens")
}

/// Beats for these claims; says how each stands, in order.
///
/// # Panics
/// If the heartbeat fails, or leaves a claim without an answer.
pub async fn heartbeat(session: &dyn Session, claims: &[Arc<Claim>]) -> Vec<Standing> {
    let told = Shared::<Vec<_>>::default();
    let heard = |claim: &Claim, standing| told.lock().push((claim.id, standing));
    let answer = session.heartbeat(claims, &heard).await;
    answer.expect("a heartbeat");
    let told = told.lock();
    let standing = |claim: &Arc<Claim>| {
        let named = told.iter().rev().find(|(id, _)| *id == claim.id);
        named.expect("each claim is named").1
    };
    claims.iter().map(standing).collect()
}

fn claim(s: &Subject, name: &str, mode: Mode) -> Claim {
    Claim::new(Name::new(name).expect("a name"), mode, s.lease * 20)
}

/// P23: a claim, heartbeat or release that is repeated after a lost reply gives the same answer and takes no second
/// place.
pub async fn operations_are_idempotent(s: &Subject) {
    let (one, two, name) = (session(s).await, session(s).await, fresh_name());
    let (first, second) = (claim(s, &name, Mode::Mutex), claim(s, &name, Mode::Mutex));
    let held = one.claim(&first).await.expect("claimed");
    assert!(matches!(held, Standing::Held(_)), "{held:?}");
    assert_eq!(
        one.claim(&first).await.expect("again"),
        held,
        "P23: another grant"
    );
    for _ in 0..2 {
        let waiting = two.claim(&second).await.expect("claimed");
        assert!(
            matches!(waiting, Standing::Waiting { ahead: 1, .. }),
            "P23: {waiting:?}"
        );
    }
    let line = s.line(&name).await.expect("held");
    assert_eq!(
        (line.holders.len(), line.waiters.len()),
        (1, 1),
        "P23: {line:?}"
    );
    assert_eq!(
        one.release(&first, 1).await.expect("released"),
        Release::Released
    );
    assert_eq!(
        one.release(&first, 1).await.expect("again"),
        Release::Gone,
        "P23"
    );
    let second = Arc::new(second);
    let granted = heartbeat(&*two, std::slice::from_ref(&second)).await;
    assert!(
        matches!(granted[..], [Standing::Held(_)]),
        "P5: {granted:?}"
    );
    assert_eq!(
        two.release(&second, 1).await.expect("released"),
        Release::Released
    );
    let (a, b) = (one.close().await, two.close().await);
    a.and(b).expect("closed");
    one.close().await.expect("P23: closing twice");
}

/// P8: a late release of an old claim does not touch the new holder.
pub async fn release_counts_once(s: &Subject) {
    let (one, name) = (session(s).await, fresh_name());
    let (old, new) = (claim(s, &name, Mode::Mutex), claim(s, &name, Mode::Mutex));
    let _ = one.claim(&old).await.expect("claimed");
    assert_eq!(
        one.release(&old, 1).await.expect("released"),
        Release::Released
    );
    let _ = one.claim(&new).await.expect("claimed");
    assert_eq!(
        one.release(&old, 1).await.expect("late"),
        Release::Gone,
        "P8"
    );
    let standing = heartbeat(&*one, &[Arc::new(new)]).await;
    assert!(
        matches!(standing[..], [Standing::Held(_)]),
        "P8: {standing:?}"
    );
    one.close().await.expect("closed");
}

/// P12: a try that finds no room is busy and not in the line.
pub async fn a_try_answers_busy(s: &Subject) {
    let (one, two, name) = (session(s).await, session(s).await, fresh_name());
    let first = claim(s, &name, Mode::Mutex);
    let _ = one.claim(&first).await.expect("claimed");
    let tried = claim(s, &name, Mode::Mutex).tries();
    assert_eq!(
        two.claim(&tried).await.expect("a try"),
        Standing::Busy,
        "P12"
    );
    assert_eq!(
        heartbeat(&*two, &[Arc::new(tried)]).await,
        [Standing::Gone],
        "P12"
    );
    let (a, b) = (one.close().await, two.close().await);
    a.and(b).expect("closed");
}

/// P23: one heartbeat answers for every claim, also for those that are not there.
pub async fn heartbeat_answers_each(s: &Subject) {
    let one = session(s).await;
    let names: Vec<_> = (0..5).map(|_| fresh_name()).collect();
    let claims: Vec<_> = names
        .iter()
        .map(|name| Arc::new(claim(s, name, Mode::Mutex)))
        .collect();
    for claim in claims.iter().step_by(2) {
        let _ = one.claim(claim).await.expect("claimed");
    }
    let standings = heartbeat(&*one, &claims).await;
    let held: Vec<_> = standings
        .iter()
        .map(|standing| matches!(standing, Standing::Held(_)))
        .collect();
    assert_eq!(held, [true, false, true, false, true], "P23: {standings:?}");
    assert_eq!(heartbeat(&*one, &[]).await, [], "P23");
    one.close().await.expect("closed");
}

/// P20: inspect shows holders and waiters, with their modes, and nothing of idle names.
pub async fn inspect_shows_holders_and_waiters(s: &Subject) {
    let (one, name) = (session(s).await, fresh_name());
    assert!(s.line(&name).await.is_none(), "P20: an idle name");
    let (first, second) = match s.reads().await {
        true => (Mode::Read, Mode::Write),
        false => (Mode::Mutex, Mode::Mutex),
    };
    let (reader, writer) = (claim(s, &name, first), claim(s, &name, second));
    let Standing::Held(held) = one.claim(&reader).await.expect("claimed") else {
        panic!("free")
    };
    let _ = one.claim(&writer).await.expect("claimed");
    let line = s.line(&name).await.expect("P20: in use");
    assert_eq!(line.name.as_str(), name);
    let ([holder], [waiter]) = (&line.holders[..], &line.waiters[..]) else {
        panic!("P20: {line:?}")
    };
    assert_eq!(
        (holder.fence, holder.mode),
        (Some(held.fence), first),
        "P20"
    );
    assert_eq!((waiter.fence, waiter.mode), (None, second), "P20");
    assert!(holder.until > holder.since, "P20: {holder:?}");
    let who = holder.who.as_ref().expect("P20: who");
    assert_eq!(who.pid, std::process::id(), "P20");
    let all = s
        .engine()
        .inspect(&crate::engine::Query::all())
        .await
        .expect("inspect");
    assert!(
        all.iter().any(|line| line.name.as_str() == name),
        "P20: listed among all"
    );
    one.close().await.expect("closed");
    s.idle(&name).await;
}

/// P20: inspect shows the lease that was asked for, and since when a holder holds, not since when it asked.
pub async fn inspect_shows_since_when_a_claim_holds(s: &Subject) {
    let (one, two, name) = (session(s).await, session(s).await, fresh_name());
    let (first, second) = (claim(s, &name, Mode::Mutex), claim(s, &name, Mode::Mutex));
    let _ = one.claim(&first).await.expect("claimed");
    let _ = two.claim(&second).await.expect("claimed");
    let line = s.line(&name).await.expect("P20: in use");
    assert!(line.waiters.iter().all(|claim| claim.held.is_none()), "P20");
    let before = line.holders[0].held;
    let waited = Duration::from_millis(40);
    tokio::time::sleep(waited).await;
    let _ = one.release(&first, 1).await.expect("released");
    let second = Arc::new(second);
    let holder = s
        .eventually("P20: the second holds", async || {
            // An engine without an order grants to a claim that asks again.
            let _ = two.claim(&second).await;
            let line = s.line(&name).await;
            let holder = line.as_ref().and_then(|line| line.holders.first().cloned());
            holder.ok_or_else(|| format!("{line:?}"))
        })
        .await;
    assert_eq!(holder.held.is_some(), before.is_some(), "P20: {holder:?}");
    if let (Some(before), Some(held)) = (before, holder.held) {
        assert!(held >= before + waited, "P20: {before:?}, {holder:?}");
        assert!(
            (holder.since..holder.until).contains(&held),
            "P20: {holder:?}"
        );
    }
    if let Some(lease) = holder.lease {
        assert!(lease >= second.lease, "P20: {holder:?}");
    }
    let (a, b) = (one.close().await, two.close().await);
    a.and(b).expect("closed");
}

/// P9: a claim whose future is dropped after one poll, then released, is not in the line.
pub async fn dropped_claim_then_release_leaves_nothing(s: &Subject) {
    let (one, name) = (session(s).await, fresh_name());
    for round in 0..20 {
        let claim = claim(s, &name, Mode::Mutex);
        let mut call = one.claim(&claim);
        for _ in 0..=round % 3 {
            let poll = std::future::poll_fn(|cx| {
                std::task::Poll::Ready(call.as_mut().poll(cx).is_ready())
            });
            if poll.await {
                break;
            }
        }
        drop(call);
        let _ = one.release(&claim, 1).await.expect("released");
        s.idle(&name).await;
    }
    one.close().await.expect("closed");
}
