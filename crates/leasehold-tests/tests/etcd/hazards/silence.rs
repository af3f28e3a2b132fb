//! Holders, waiters and servers that stand still, or cannot be heard.

use std::sync::Arc;

use leasehold::engine::{Etcd as Engine, Url};

use super::*;

/// The holder cannot be heard: its guard says so before another claim is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_told_before_the_lock_passes_on() {
    let server = Etcd::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for round in 0..3 {
        let guard = soon("locked", ours.mutex("p").lock()).await;
        let guard = guard.expect("locked");
        let next = waiter(&direct, "p");
        line(&direct, "p", 1, 1).await;
        proxy.set_both(Fate::Hold);
        let watched = async {
            is(&guard, GuardState::Unsure).await;
            let _ = guard.lost().await;
            Clock::boot().now()
        };
        let passed_on = async {
            let next = next.await.expect("no panic").expect("granted");
            (Clock::boot().now(), next)
        };
        let both = async { tokio::join!(watched, passed_on) };
        let (lost, (at, next)) = soon("both", both).await;
        assert!(lost < at, "round {round}: told {} µs late", lost - at);
        assert!(next.fence() > guard.fence());
        assert_eq!(guard.release().await.expect("a release"), Released::WasLost);
        proxy.set_both(Fate::Pass);
        drop(next);
    }
}

/// A frozen server grants no claim, and the holder does not trust it longer than its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_not_trusted() {
    let server = Etcd::start();
    let ours = client(&server.url()).await;
    let guard = ours.mutex("f").lock().await.expect("free");
    let (clock, before) = (Clock::boot(), Clock::boot().now());
    server.pause();
    let _ = soon("lost", guard.lost()).await;
    let took = Duration::from_micros(clock.now() - before);
    server.resume();
    assert!(took <= LEASE * 5 / 4, "told after {took:?}");
    let again = soon("again", ours.mutex("f").lock()).await;
    assert!(again.expect("locked").fence() > guard.fence());
}

/// A short freeze, as of a slow disk, costs nothing but time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_freeze_loses_nothing() {
    let server = Etcd::start();
    let ours = client(&server.url()).await;
    let guard = ours.mutex("slow").lock().await.expect("free");
    server.pause();
    let other = ours.mutex("another");
    let answered = tokio::time::timeout(LEASE / 5, other.lock()).await;
    assert!(answered.is_err(), "a frozen server answers");
    server.resume();
    is(&guard, GuardState::Valid).await;
    assert_eq!(guard.release().await.expect("released"), Released::Released);
}

/// A waiter whose lease ended in a silence stands in line again, at its end (P4: its place was that of its session), and its
/// wait goes on: that has no time limit. The lease is revoked, and not waited for: the server keeps a silent one for up to two
/// leases after the client's last word, and about then the claim that is made anew has had no answer for a lease, which ends
/// the wait with an error (P12).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_while_waiting_joins_again() {
    let server = Etcd::start();
    let proxy = Proxy::before(server.port());
    let direct = patient(&server.url(), LONG).await;
    let ours = patient(&format!("etcd://127.0.0.1:{}", proxy.port), LEASE * 3).await;
    let held = direct.mutex("w").lock().await.expect("free");
    let holder = server.keys("locks/w/");
    let mut next = waiter(&ours, "w");
    line(&direct, "w", 1, 1).await;
    proxy.set_both(Fate::Hold);
    let keys = server.keys("locks/w/");
    let waits = keys.iter().find(|key| !holder.contains(key));
    let lease = waits.and_then(|key| key.rsplit_once('/')?.1.split('-').next());
    let _ = server.say(&["lease", "revoke", lease.expect("a waiter")]);
    line(&direct, "w", 1, 0).await;
    proxy.set_both(Fate::Pass);
    proxy.reset();
    tokio::select! {
        () = line(&direct, "w", 1, 1) => {}
        ended = &mut next => panic!("it does not wait any more: {ended:?}"),
    }
    assert_eq!(held.release().await.expect("released"), Released::Released);
    drop(granted(next).await);
    line(&direct, "w", 0, 0).await;
}

/// A key was made, its answer never came, and its lease ended: a caller that asks again gets a key of the new lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_an_older_session_is_never_ours() {
    let server = Etcd::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    // The lease is there: one request makes the key.
    drop(ours.mutex("before").lock().await.expect("free"));
    let first = direct.rwlock("old").read().await.expect("free");
    proxy.set(Way::ToClient, Fate::Hold);
    let lock = ours.rwlock("old");
    let locking = tokio::spawn(async move { lock.read().await });
    line(&direct, "old", 2, 0).await;
    let query = Query::name(Name::new("old").expect("a name"));
    let lines = direct.inspect(&query).await.expect("inspected");
    let old = lines[0].holders[1].fence.expect("it holds");
    // Nothing we send arrives either: the server ends the lease, with its key.
    proxy.set(Way::ToServer, Fate::Hold);
    line(&direct, "old", 1, 0).await;
    proxy.set_both(Fate::Pass);
    let guard = match soon("an answer", locking).await.expect("no panic") {
        Ok(guard) => guard,
        Err(error) => {
            assert!(error.may_have_happened(), "{error}");
            let again = soon("locked", ours.rwlock("old").read()).await;
            again.expect("locked")
        }
    };
    assert!(guard.fence() > old, "the old node is not ours");
    line(&direct, "old", 2, 0).await;
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    assert_eq!(first.release().await.expect("released"), Released::Released);
    line(&direct, "old", 0, 0).await;
}

/// A process that was stopped past its session finds its lock lost, and its late write refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_holder_wakes_up_without_its_lock() {
    let server = Etcd::start();
    let url = format!("{}?prefix=locks/", server.url());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("fenced");
    std::fs::write(&file, "0").expect("writable");
    let locker = || {
        let mut locker = Command::new(env!("CARGO_BIN_EXE_locker"));
        let locker = Process::start(locker.args([&url, "1000"]));
        assert_eq!(locker.hear(), "ready");
        locker
    };
    let (mut stopped, mut other) = (locker(), locker());
    let write = format!("write s {}", file.display());
    assert!(stopped.ask("lock s").starts_with("held"));
    stopped.signal(Signal::STOP);
    assert!(other.ask("lock s").starts_with("held"), "it passed on");
    assert_eq!(other.ask(&write), "accepted");
    stopped.signal(Signal::CONT);
    assert!(stopped.ask(&write).starts_with("refused"));
    assert_eq!(stopped.ask("state s"), "Lost");
}

/// A member takes at most one ping in five seconds, and ends the connection of a client that sends more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_with_nothing_to_say_is_kept() {
    const IDLE: Duration = Duration::from_secs(60);
    let server = Etcd::start();
    let proxy = Proxy::before(server.port());
    let url = Url::parse(&format!("etcd://127.0.0.1:{}", proxy.port)).expect("a URL");
    let engine = Arc::new(Engine::from_url(&url).expect("an engine").lease(IDLE));
    let ours = ConnectOptions::new().lease(IDLE).open(engine).await;
    let guard = ours
        .expect("connected")
        .mutex("idle")
        .lock()
        .await
        .expect("free");
    let (connections, deadline) = (proxy.connections(), guard.deadline());
    // A heartbeat is sent every third of a lease: until then the pings are all that is said.
    until("the next heartbeat", async || {
        assert_eq!(guard.state(), GuardState::Valid, "the connection was lost");
        match guard.deadline() > deadline + IDLE / 4 {
            true => Ok(()),
            false => Err(format!("{:?} left", guard.remaining())),
        }
    })
    .await;
    assert_eq!(proxy.connections(), connections, "connected again");
}
