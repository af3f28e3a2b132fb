//! A lease that ends: with its process, by an operator's hand, or while the server is away.

use super::*;

fn locker(server: &Etcd, lease: &str) -> Process {
    let url = format!("{}?prefix=locks/", server.url());
    let mut locker = Command::new(env!("CARGO_BIN_EXE_locker"));
    let locker = Process::start(locker.args([url.as_str(), lease]));
    assert_eq!(locker.hear(), "ready");
    locker
}

/// The id of the lease that the holder's key is attached to.
fn lease_of(server: &Etcd, name: &str) -> String {
    let keys = server.keys(&format!("locks/{name}/"));
    let key = keys.first().expect("a holder");
    let lease = key.rsplit_once('/').expect("below the name").1;
    lease.split('-').next().expect("its lease").to_owned()
}

/// A killed holder's lock passes on after the lease that the server gave it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holders_lock_passes_on_after_its_own_lease() {
    let server = Etcd::start();
    let ours = patient(&server.url(), LONG).await;
    for (lease, given) in [(6_000, 8), (1_000, 2)] {
        let mut holder = locker(&server, &i32::to_string(&lease));
        assert!(holder.ask("lock d").starts_with("held"));
        let next = waiter(&ours, "d");
        line(&ours, "d", 1, 1).await;
        let (clock, killed) = (Clock::boot(), Clock::boot().now());
        holder.kill();
        drop(granted(next).await);
        let took = Duration::from_micros(clock.now() - killed);
        // The server looks every half second, and a second and a half are for a busy machine.
        let most = Duration::from_secs(given) + Duration::from_millis(2_000);
        assert!(
            took <= most,
            "passed on after {took:?}, a lease of {lease} ms"
        );
    }
}

/// An operator revokes the lease of a holder: the holder is told at once, its waiters too, and the lock passes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_revoked_is_told() {
    let server = Etcd::start();
    let (ours, other) = (
        patient(&server.url(), LONG).await,
        patient(&server.url(), LONG).await,
    );
    let guard = ours.mutex("r").lock().await.expect("free");
    let next = waiter(&other, "r");
    line(&other, "r", 1, 1).await;
    let (clock, before) = (Clock::boot(), Clock::boot().now());
    let _ = server.say(&["lease", "revoke", &lease_of(&server, "r")]);
    let next = granted(next).await;
    let _ = soon("told", guard.lost()).await;
    let took = Duration::from_micros(clock.now() - before);
    assert!(took < LONG / 3, "told after {took:?}");
    assert!(next.fence() > guard.fence());
    assert_eq!(guard.release().await.expect("a release"), Released::WasLost);
    // The client goes on, with another lease.
    assert_eq!(next.release().await.expect("released"), Released::Released);
    drop(soon("again", ours.mutex("r").lock()).await.expect("free"));
}

/// A waiter whose lease is revoked is not granted afterwards; it stands in line again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_lease_is_revoked_joins_again() {
    let server = Etcd::start();
    let (ours, other) = (
        patient(&server.url(), LEASE * 3).await,
        patient(&server.url(), LONG).await,
    );
    let held = other.mutex("w").lock().await.expect("free");
    let next = waiter(&ours, "w");
    line(&other, "w", 1, 1).await;
    let holder = held.fence().get() / 256;
    let keys = server.keys("locks/w/");
    let waits = keys.iter().find(|key| {
        let said = server.say(&["get", key, "-w", "fields"]);
        !said.contains(&format!("\"CreateRevision\" : {holder}\n"))
    });
    let lease = waits.and_then(|key| key.rsplit_once('/')?.1.split('-').next());
    let _ = server.say(&["lease", "revoke", lease.expect("a waiter")]);
    line(&other, "w", 1, 1).await;
    assert_eq!(held.state(), GuardState::Valid);
    assert_eq!(held.release().await.expect("released"), Released::Released);
    drop(granted(next).await);
    line(&other, "w", 0, 0).await;
}

/// The key of a waiter is deleted by hand: the waiter stands in line again at once, and not only when its turn comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_whose_key_is_deleted_joins_again() {
    let server = Etcd::start();
    let (ours, other) = (
        patient(&server.url(), LONG * 3).await,
        patient(&server.url(), LONG * 3).await,
    );
    let held = other.mutex("w").lock().await.expect("free");
    let mine = server.keys("locks/w/");
    let next = waiter(&ours, "w");
    line(&other, "w", 1, 1).await;
    let keys = server.keys("locks/w/");
    let waits = keys.iter().find(|key| !mine.contains(key));
    let waits = waits.expect("a waiter");
    let (clock, before) = (Clock::boot(), Clock::boot().now());
    let _ = server.say(&["del", waits]);
    line(&other, "w", 1, 1).await;
    let took = Duration::from_micros(clock.now() - before);
    assert!(
        took < LONG / 2,
        "again in line after {took:?}, before a heartbeat"
    );
    assert!(!server.keys("locks/w/").contains(waits), "under a new id");
    assert_eq!(held.release().await.expect("released"), Released::Released);
    drop(granted(next).await);
}

/// A key that is deleted by hand is told to its holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_deleted_by_hand_are_told() {
    let server = Etcd::start();
    let (ours, other) = (client(&server.url()).await, client(&server.url()).await);
    for _ in 0..3 {
        let held = soon("free", ours.mutex("d").lock()).await.expect("free");
        let next = waiter(&other, "d");
        line(&other, "d", 1, 1).await;
        let _ = server.say(&["del", "--prefix", "locks/d/"]);
        let _ = soon("told", held.lost()).await;
        drop(soon("granted", next).await.expect("no panic"));
        let next = soon("free", other.mutex("d").lock())
            .await
            .expect("granted");
        assert!(next.fence() > held.fence());
        assert_eq!(held.release().await.expect("a release"), Released::WasLost);
        assert_eq!(next.release().await.expect("released"), Released::Released);
    }
}

/// The history that a watch begins in is compacted away: the waiter looks again, and waits on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_costs_no_waiter_its_turn() {
    let server = Etcd::start();
    let proxy = Proxy::before(server.port());
    let direct = patient(&server.url(), LONG).await;
    let ours = patient(&format!("etcd://127.0.0.1:{}", proxy.port), LONG).await;
    let held = direct.mutex("c").lock().await.expect("free");
    let next = waiter(&ours, "c");
    line(&direct, "c", 1, 1).await;
    // While the waiter is not heard, the lock passes on, and what happened is forgotten by the server.
    proxy.set_both(Fate::Hold);
    for round in 0..5 {
        let _ = server.say(&["put", "other", &round.to_string()]);
    }
    assert_eq!(held.release().await.expect("released"), Released::Released);
    let revision = server.revision().to_string();
    let _ = server.say(&["compact", &revision]);
    proxy.set_both(Fate::Pass);
    proxy.reset();
    drop(granted(next).await);
    line(&direct, "c", 0, 0).await;
}

/// A server that dies and comes back within the lease loses no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_what_is_held() {
    let server = Etcd::start();
    let ours = patient(&server.url(), LONG).await;
    let guard = ours.mutex("k").lock().await.expect("free");
    let fence = guard.fence();
    server.kill();
    server.restart();
    server.ready();
    is(&guard, GuardState::Valid).await;
    let other = client(&server.url()).await;
    assert!(other.mutex("k").try_lock().await.expect("a try").is_none());
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    let next = soon("free", other.mutex("k").lock()).await;
    assert!(next.expect("granted").fence() > fence);
}

/// Hundreds wait, each behind one key, and a release wakes one of them: the server's work for a hand-over does not grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_waiters_is_no_herd() {
    const CLIENTS: usize = 6;
    let server = Etcd::start();
    let proxies: Vec<_> = (0..CLIENTS).map(|_| Proxy::before(server.port())).collect();
    let lease = LONG * 3;
    let ours = patient(&server.url(), lease).await;
    let held = ours.mutex("h").strict().lock().await.expect("free");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for proxy in &proxies {
        let client = patient(&format!("etcd://127.0.0.1:{}", proxy.port), lease).await;
        for _ in 0..50 {
            let (mutex, tell) = (client.mutex("h").strict(), tell.clone());
            drop(tokio::spawn(async move {
                let guard = mutex.lock().await.expect("granted");
                tell.send(guard).expect("heard");
            }));
        }
    }
    line(&ours, "h", 1, CLIENTS * 50).await;
    let mut guard = held;
    for _ in 0..20 {
        let revision = server.revision();
        assert_eq!(guard.release().await.expect("released"), Released::Released);
        guard = soon("the next", told.recv()).await.expect("one");
        assert!(told.try_recv().is_err(), "two holders");
        assert_eq!(server.revision(), revision + 1, "one write per hand-over");
    }
}
