//! One server: frozen, restarted, its sessions destroyed, its answers held back.

use super::*;

/// An agent that freezes for longer than a session lives: the holder is told in time, on its own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_agent_leaves_one_holder() {
    let server = Consul::start();
    let door = Proxy::before(server.port());
    let ours = client(&format!("consul://127.0.0.1:{}", door.port)).await;
    let other = patient(&server.url(), LONG).await;
    let guard = ours.mutex("f").lock().await.expect("free");
    let next = waiter(&other, "f");
    line(&other, "f", 1, 1).await;
    // As if the holder's agent stood still: nothing is refused, nothing is answered.
    door.set_both(Fate::Hold);
    let (clock, frozen) = (Clock::boot(), Clock::boot().now());
    let next = lost_before_granted(&guard, next).await;
    let took = Duration::from_micros(clock.now() - frozen);
    assert!(took >= LEASE, "passed on after {took:?}, before a TTL");
    door.set_both(Fate::Pass);
    let fence = guard.fence();
    assert_eq!(guard.release().await.expect("a release"), Released::WasLost);
    assert_eq!(next.release().await.expect("released"), Released::Released);
    // The client that was cut off goes on with a session of its own again.
    let again = soon("again", ours.mutex("f").lock()).await.expect("locked");
    assert!(again.fence() > fence);
}

/// The same with the locks of `consul lock`: the waiter is another client of this process, and asks Consul itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_agent_leaves_one_holder_of_a_shared_lock() {
    let server = Consul::start();
    let door = Proxy::before(server.port());
    let ours = format!("consul://127.0.0.1:{}?layout=consul", door.port);
    let ours = ConnectOptions::new().lease(LEASE).connect(&ours).await;
    let other = format!("{}?layout=consul", server.url());
    let other = ConnectOptions::new().lease(LONG).connect(&other).await;
    let (ours, other) = (ours.expect("connected"), other.expect("connected"));
    let guard = ours.mutex("f").lock().await.expect("free");
    let permit = ours.semaphore("p", 2).acquire_many(2).await.expect("free");
    let next = waiter(&other, "f");
    line(&other, "f", 1, 1).await;
    door.set_both(Fate::Hold);
    let next = lost_before_granted(&guard, next).await;
    assert!(soon("told", permit.lost()).await.is_lost());
    let again = soon("passed on", other.semaphore("p", 2).acquire_many(2)).await;
    assert!(again.expect("granted").fence() > permit.fence());
    door.set_both(Fate::Pass);
    assert_eq!(guard.release().await.expect("a release"), Released::WasLost);
    assert_eq!(next.release().await.expect("released"), Released::Released);
}

/// The server itself stands still and goes on: the holder still holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_takes_no_lock() {
    let server = Consul::start();
    let ours = patient(&server.url(), LONG).await;
    let guard = ours.mutex("s").lock().await.expect("free");
    let deadline = guard.deadline();
    server.pause();
    until("a while", async || match guard.remaining() {
        left if left < LONG / 2 => Ok(()),
        left => Err(format!("{left:?} left")),
    })
    .await;
    server.resume();
    until("renewed", async || match guard.deadline() > deadline {
        true => Ok(()),
        false => Err(format!("{:?}", guard.state())),
    })
    .await;
    is(&guard, GuardState::Valid).await;
    assert_eq!(guard.release().await.expect("released"), Released::Released);
}

/// A server that is killed and comes back on its data has lost no lock, and fences go on growing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_comes_back_with_its_locks() {
    // When the guard is unsure, two thirds of its lease are left for the start of the server and for its election.
    let lease = 3 * LONG;
    let server = Consul::start();
    let ours = patient(&server.url(), lease).await;
    let other = patient(&server.url(), lease).await;
    let guard = ours.mutex("k").lock().await.expect("free");
    let next = waiter(&other, "k");
    line(&other, "k", 1, 1).await;
    server.kill();
    is(&guard, GuardState::Unsure).await;
    server.restart();
    server.ready();
    is(&guard, GuardState::Valid).await;
    assert!(!next.is_finished(), "two holders");
    let fence = guard.fence();
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    assert!(granted(next).await.fence() > fence);
}

/// An operator destroys the session: its holder is told soon, and the next in line gets the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_destroyed_is_told() {
    let server = Consul::start();
    let ours = patient(&server.url(), LONG).await;
    let guard = ours.mutex("d").lock().await.expect("free");
    let mine = server.sessions();
    let other = patient(&server.url(), LONG).await;
    let next = waiter(&other, "d");
    line(&other, "d", 1, 1).await;
    for session in mine {
        let _ = server
            .ask("PUT", &format!("session/destroy/{session}"), "")
            .expect("destroyed");
    }
    let (clock, destroyed) = (Clock::boot(), Clock::boot().now());
    let _ = soon("told", guard.lost()).await;
    let took = Duration::from_micros(clock.now() - destroyed);
    assert!(took < LONG / 2, "told after {took:?}");
    drop(granted(next).await);
    drop(
        soon("again", ours.mutex("other").lock())
            .await
            .expect("locked"),
    );
}

/// An operator deletes the holder's key: the holder is told without waiting for its heartbeat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_deleted_is_told() {
    let server = Consul::start();
    let ours = patient(&server.url(), LONG).await;
    let guard = ours.mutex("x").lock().await.expect("free");
    let keys = server.ask("GET", "kv/locks/?keys", "").expect("keys");
    let key = keys.split('"').find(|key| key.contains("/x/line/"));
    let key = key.expect("the key of the lock");
    let _ = server
        .ask("DELETE", &format!("kv/{key}"), "")
        .expect("deleted");
    let (clock, deleted) = (Clock::boot(), Clock::boot().now());
    let _ = soon("told", guard.lost()).await;
    let took = Duration::from_micros(clock.now() - deleted);
    assert!(took < LONG / 4, "told after {took:?}");
}

/// The answer to a claim is held back until its caller has given up, and the request comes even later: nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_comes_late_leaves_nothing() {
    let server = Consul::start();
    let door = Proxy::before(server.port());
    let ours = patient(&format!("consul://127.0.0.1:{}", door.port), LONG).await;
    let direct = patient(&server.url(), LONG).await;
    drop(ours.mutex("warm").lock().await.expect("free"));
    for round in 0..10 {
        let name = format!("late-{round}");
        door.set(Way::ToServer, Fate::Hold);
        let tried = ours
            .mutex(&name)
            .lock_within(Duration::from_millis(100))
            .await;
        assert!(!matches!(tried, Ok(Some(_))), "{tried:?}");
        door.set_both(Fate::Pass);
        line(&direct, &name, 0, 0).await;
        let next = direct
            .mutex(&name)
            .lock_within(LONG / 4)
            .await
            .expect("a lock");
        assert!(next.is_some(), "a claim that gave up is in the way");
    }
}

/// Many waiters of many names wait with one request per prefix, and a process with a thousand locks has few connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_locks_share_a_few_connections() {
    let server = Consul::start();
    let door = Proxy::before(server.port());
    let ours = patient(&format!("consul://127.0.0.1:{}", door.port), LONG).await;
    let mut held = Vec::new();
    for at in 0..200 {
        held.push(ours.mutex(format!("many-{at}")).lock().await.expect("free"));
    }
    // Those that were ever made: each prefix has one that waits for its first name, and another once it has two.
    let connections = door.connections();
    assert!(connections <= 100, "{connections} connections");
    assert!(held.iter().all(|guard| guard.state() == GuardState::Valid));
}

/// A key in the line that no session has is no claim: it is in no claim's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_a_session_is_no_claim() {
    let server = Consul::start();
    let ours = patient(&server.url(), LONG).await;
    let guard = ours.mutex("g").lock().await.expect("free");
    let stored = server.ask("GET", "kv/locks/?recurse", "").expect("keys");
    let entry = stored.split('{').find(|entry| entry.contains("/g/line/"));
    let entry = entry.expect("the key of the lock");
    let key = entry.split_once("\"Key\":\"").expect("a key").1;
    let dir = key.rsplit_once("/line/").expect("a line").0;
    let flags = entry.split_once("\"Flags\":").expect("flags").1;
    let flags = flags.split(',').next().expect("a number");
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    let other = format!("kv/{dir}/line/{:032x}?flags={flags}", 7);
    let _ = server.ask("PUT", &other, "x").expect("written");
    let again = ours.mutex("g").lock_within(LONG / 4).await.expect("a lock");
    assert!(again.is_some(), "a key without a session is in the way");
}

/// What a session had is gone with it: no key of a line stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_leaves_no_key() {
    let server = Consul::start();
    let ours = patient(&server.url(), LONG).await;
    let _guard = ours.mutex("e").lock().await.expect("free");
    for session in server.sessions() {
        let _ = server
            .ask("PUT", &format!("session/destroy/{session}"), "")
            .expect("destroyed");
    }
    let left = server.ask("GET", "kv/locks/?keys", "");
    assert!(left.is_err(), "left behind: {left:?}");
}
