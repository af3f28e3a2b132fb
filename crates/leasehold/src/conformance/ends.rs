//! P5, P7, P8, P10, P11, P14, P19, P21: how a hold ends.

use std::sync::Arc;
use std::time::Duration;

use super::{Subject, fresh_name};
use crate::clock::micros;
use crate::engine::{Claim, Clock, Identity, Inbox, Mode, Standing};
use crate::error::ErrorKind;
use crate::guard::Released;
use crate::name::Name;
use crate::options::ConnectOptions;
use crate::session::GuardState;

/// P5: a release grants to the next in line; it does not have to ask, and does not wait for a heartbeat.
pub async fn release_hands_over_at_once(s: &Subject) {
    let lease = Duration::from_secs(30); // a heartbeat would come after 10 s
    let (a, b, name) = (s.client().await, s.client().await, fresh_name());
    for round in 0..3 {
        let held = a.mutex(&name).lease(lease).lock().await.expect("free");
        let waiter = b.mutex(&name).lease(lease);
        #[expect(
            clippy::disallowed_methods,
            reason = "a check plays the part of a user's task"
        )]
        let waiter = tokio::spawn(async move { waiter.lock().await });
        s.waiting(&name, 1).await;
        let clock = Clock::boot();
        let before = clock.now();
        assert_eq!(held.release().await.expect("released"), Released::Released);
        let granted = s
            .soon("P5: the next is granted", waiter)
            .await
            .expect("no panic")
            .expect("granted");
        let took = Duration::from_micros(clock.now() - before);
        assert!(
            took < Duration::from_secs(5),
            "P5: round {round} took {took:?}: by heartbeat, not by push"
        );
        let _ = granted.release().await.expect("released");
    }
}

/// P7, P14: the evicted holder is told why, its release says so, and the next in line has a larger fence.
pub async fn eviction_is_told(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).lock().await.expect("free");
    let signal = held.loss_signal();
    let waiter = b.mutex(&name);
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let waiter = tokio::spawn(async move { waiter.lock().await });
    s.waiting(&name, 1).await;
    assert_eq!(
        b.evict_fence(&name, held.fence(), "it hangs")
            .await
            .expect("evicted"),
        1
    );
    let why = s.soon("P7: the loss is told", held.lost()).await;
    assert!(
        why.is_lost() && why.to_string().contains("it hangs"),
        "P14: {why}"
    );
    assert_eq!(held.state(), GuardState::Lost, "P7");
    assert!(
        held.check().is_err() && signal.is_lost() && held.remaining().is_zero(),
        "P7"
    );
    let next = s
        .soon("P14: the next is granted", waiter)
        .await
        .expect("no panic")
        .expect("granted");
    assert!(
        next.fence() > held.fence(),
        "P6: {} after {}",
        next.fence(),
        held.fence()
    );
    assert_eq!(
        held.release().await.expect("a release"),
        Released::WasLost,
        "P8"
    );
    assert_eq!(
        next.state(),
        GuardState::Valid,
        "P8: the evicted holder released the next holder's lock"
    );
    assert_eq!(
        b.evict_fence(&name, crate::Fence::new(1), "a stale fence")
            .await
            .expect("evict"),
        0,
        "P14"
    );
    assert_eq!(next.release().await.expect("released"), Released::Released);
}

/// P11: a session that falls silent loses its claims, held and waiting, within a lease.
pub async fn a_silent_session_loses_its_claims(s: &Subject) {
    let (a, name) = (s.client().await, fresh_name());
    let silent = s
        .engine()
        .open(&Identity::of_this_process(), Inbox::new(|_| {}))
        .await
        .expect("opens");
    let claim = |waits: bool| {
        let claim = Claim::new(Name::new(&name).expect("a name"), Mode::Mutex, s.lease);
        if waits { claim } else { claim.tries() }
    };
    let held = silent.claim(&claim(false)).await.expect("claimed");
    let Standing::Held(held) = held else {
        panic!("free, but {held:?}")
    };
    let waiting = silent.claim(&claim(true)).await.expect("claimed");
    assert!(
        matches!(waiting, Standing::Waiting { ahead: 1, .. }),
        "{waiting:?}"
    );
    let clock = Clock::boot();
    let before = clock.now();
    let guard = s
        .soon("P11: freed within a lease", a.mutex(&name).lock())
        .await
        .expect("granted");
    let took = Duration::from_micros(clock.now() - before);
    assert!(guard.fence() > held.fence, "P6");
    assert!(
        took < s.lease * 4 + Duration::from_secs(2),
        "P11: took {took:?} with a lease of {:?}",
        s.lease
    );
    drop(guard);
    s.idle(&name).await;
}

/// P11: a session that closes frees what it had at once.
pub async fn closing_frees_at_once(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a
        .mutex(&name)
        .lease(Duration::from_secs(60))
        .lock()
        .await
        .expect("free");
    let left = a.shutdown(Duration::ZERO).await.expect("closed");
    assert_eq!(left.abandoned, 1, "P19");
    assert_eq!(
        held.state(),
        GuardState::Lost,
        "P7: a closed session holds nothing"
    );
    drop(
        s.soon("P11: freed", b.mutex(&name).lock())
            .await
            .expect("granted"),
    );
    s.idle(&name).await;
}

/// P10: a dropped guard is given back in the background.
pub async fn dropped_guards_are_given_back(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    drop(
        a.mutex(&name)
            .lease(Duration::from_secs(60))
            .lock()
            .await
            .expect("free"),
    );
    drop(
        s.soon("P10: given back", b.mutex(&name).lock())
            .await
            .expect("granted"),
    );
    s.idle(&name).await;
}

/// P10: also when it is dropped on a thread without a runtime, and while panicking.
pub async fn drop_works_without_a_runtime(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let guard = a
        .mutex(&name)
        .lease(Duration::from_secs(60))
        .lock()
        .await
        .expect("free");
    std::thread::spawn(move || drop(guard))
        .join()
        .expect("P10: no panic outside a runtime");
    let guard = s
        .soon("P10: given back", b.mutex(&name).lock())
        .await
        .expect("granted");
    let panicked = std::thread::spawn(move || {
        let _guard = guard;
        std::panic::resume_unwind(Box::new("a panic in the critical section"));
    });
    assert!(panicked.join().is_err());
    drop(
        s.soon("P10: given back by a panic", a.mutex(&name).lock())
            .await
            .expect("granted"),
    );
    s.idle(&name).await;
}

/// P7: a held lock and a place in line are renewed for longer than a lease.
pub async fn renewal_outlives_the_lease(s: &Subject) {
    for _ in 0..ROUNDS {
        if renewed(s).await {
            return;
        }
    }
    panic!("this process stood still for most of a lease in each of {ROUNDS} rounds");
}

/// How often a check begins again because its own process stood still.
const ROUNDS: usize = 10;

/// False if this process stood still for so long that it could not renew in time: then there is nothing to see.
async fn renewed(s: &Subject) -> bool {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).lease(s.lease).lock().await.expect("free");
    let waiter = b.mutex(&name).lease(s.lease);
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let waiter = tokio::spawn(async move { waiter.lock().await });
    s.waiting(&name, 1).await;
    let since = s.line(&name).await.map(|line| line.waiters[0].since);
    let (clock, lease) = (Clock::boot(), micros(s.lease));
    let (begin, mut last, mut still) = (clock.now(), clock.now(), 0);
    while last < begin + 3 * lease {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let (kept, line) = (held.check(), s.line(&name).await);
        still = still.max(clock.now() - last);
        last = clock.now();
        let waiting = line.as_ref().map_or(0, |line| line.waiters.len());
        if still > lease / 4 && (kept.is_err() || waiting != 1) {
            return false;
        }
        kept.expect("P7: lost although it is renewed");
        assert_eq!(waiting, 1, "P4: the waiter lost its place: {line:?}");
    }
    let now = s.line(&name).await.map(|line| line.waiters[0].since);
    let moved = now.zip(since).map(|(now, since)| now.duration_since(since));
    assert!(
        moved.is_none_or(|moved| moved.unwrap_or_default() < s.lease / 2),
        "P4: it joined again instead of keeping its place"
    );
    assert_eq!(held.release().await.expect("released"), Released::Released);
    let next = s.soon("P5", waiter).await.expect("no panic");
    drop(next.expect("granted"));
    s.idle(&name).await;
    true
}

/// P21: without keep-alive the lock ends one lease after the grant, and not before.
pub async fn a_fixed_lease_ends(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).lock().await.expect("free");
    let waiter = b.mutex(&name).lease(s.lease).keep_alive(false);
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let waiter = tokio::spawn(async move { waiter.lock().await });
    s.waiting(&name, 1).await;
    let clock = Clock::boot();
    let before = clock.now();
    let _ = held.release().await.expect("released");
    let fixed = s.soon("P5", waiter).await.expect("no panic");
    let fixed = fixed.expect("granted");
    // A guard that is valid after the look was valid during it, however long the look took.
    let (granted, mut valid) = (clock.now(), clock.now());
    while valid < granted + 2 * micros(s.lease) {
        let now = clock.now();
        if fixed.check().is_err() {
            break;
        }
        valid = now;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let valid = Duration::from_micros(valid - granted);
    assert!(
        valid <= s.lease,
        "P7: valid {valid:?} after the grant, and the lease is {:?}",
        s.lease
    );
    let why = s.soon("P21: it ends", fixed.lost()).await;
    let took = Duration::from_micros(clock.now() - before);
    assert_eq!(why.kind(), ErrorKind::Lost);
    assert!(
        took >= s.lease / 2,
        "P21: ended after {took:?} of {:?}",
        s.lease
    );
    drop(
        s.soon("P11: freed", a.mutex(&name).lock())
            .await
            .expect("granted"),
    );
}

/// P19: shutdown waits for guards, refuses new claims and leaves nothing.
pub async fn shutdown_drains(s: &Subject) {
    let (name, lingering) = (fresh_name(), fresh_name());
    let client = s.client_with(ConnectOptions::new()).await;
    let guard = client.mutex(&name).lock().await.expect("free");
    let linger = client.mutex(&lingering).linger(Duration::from_secs(60));
    let _ = linger
        .lock()
        .await
        .expect("free")
        .release()
        .await
        .expect("released");
    let closing = client.clone();
    let patience = s.patience;
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let closing = tokio::spawn(async move { closing.shutdown(patience).await });
    let refused = s.eventually("P19: new claims are refused", async || {
        match client.mutex("other").try_lock().await {
            Err(error) => Ok(error),
            Ok(_) => Err("still granted".to_owned()),
        }
    });
    assert_eq!(refused.await.kind(), ErrorKind::Closed);
    assert_eq!(
        guard.release().await.expect("released"),
        Released::Released,
        "P19: what is held may finish"
    );
    let left = s
        .soon("P19", closing)
        .await
        .expect("no panic")
        .expect("closed");
    assert_eq!(left.abandoned, 0, "P19");
    s.idle(&name).await;
    s.idle(&lingering).await;
}

/// P19: waiters are told when the client shuts down.
pub async fn shutdown_tells_waiters(s: &Subject) {
    let ((a, b), name) = (s.two().await, fresh_name());
    let held = a.mutex(&name).lock().await.expect("free");
    let (one, two) = (Arc::new(b.mutex(&name)), b.mutex(&name));
    #[expect(
        clippy::disallowed_methods,
        reason = "a check plays the part of a user's task"
    )]
    let (front, behind) = (
        tokio::spawn(async move { one.lock().await }),
        tokio::spawn(async move { two.lock().await }),
    );
    s.waiting(&name, 1).await;
    let _ = s.soon("P19", b.shutdown(s.patience)).await.expect("closed");
    for waiter in [front, behind] {
        let told = s
            .soon("P19: the waiter is told", waiter)
            .await
            .expect("no panic");
        assert!(told.is_err(), "P19: granted by a client that was shut down");
    }
    s.waiting(&name, 0).await;
    let _ = held.release().await.expect("released");
}
