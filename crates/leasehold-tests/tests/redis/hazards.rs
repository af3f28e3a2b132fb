//! Hazards of a Redis server: killed, restarted, paused, full, with another clock.
use std::time::Duration;

use leasehold::conformance::{Subject, fresh_name};
use leasehold::engine::{Level, Redis as Engine, Url};
use leasehold::{Client, ConnectOptions, ErrorKind, Guard, GuardState, Released};
use leasehold_testkit::servers::redis::Redis;

const LEASE: Duration = Duration::from_millis(900);

async fn client(url: &str) -> Client {
    client_for(url, LEASE).await
}

async fn client_for(url: &str, lease: Duration) -> Client {
    let connected = ConnectOptions::new().lease(lease).connect(url).await;
    connected.expect("connected")
}

fn subject(url: &str) -> Subject {
    Subject::new(Engine::from_url(&Url::parse(url).expect("a URL")).expect("an engine"))
}

async fn lost(guard: &Guard, within: Duration) -> String {
    let told = tokio::time::timeout(within, guard.lost()).await;
    told.unwrap_or_else(|_| panic!("not told within {within:?}: {:?}", guard.state()))
        .to_string()
}

/// Asks until it is granted; the server may be away.
async fn lock_again(s: &Subject, client: &Client, name: &str) -> Guard {
    s.eventually("it can be locked again", async || {
        client
            .mutex(name)
            .lock_within(LEASE * 3)
            .await
            .map_err(|error| error.to_string())?
            .ok_or("busy".to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_memory_is_told_and_fences_grow() {
    let mut server = Redis::start();
    let (a, s, name) = (
        client(&server.url()).await,
        subject(&server.url()),
        fresh_name(),
    );
    let guard = a.mutex(&name).lock().await.expect("free");
    let fence = guard.fence();
    server.kill();
    server.restart();
    let why = lost(&guard, LEASE * 2).await;
    println!("told: {why}");
    assert_eq!(guard.release().await.expect("an answer"), Released::WasLost);
    let again = lock_again(&s, &a, &name).await;
    assert!(again.fence() > fence, "{} after {fence}", again.fence());
}

/// A release tells the value that it expects; it finds another claim's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_after_the_keys_were_deleted_by_hand_leaves_the_next_holder() {
    let server = Redis::start();
    let lease = Duration::from_secs(30);
    let (a, b) = (
        client_for(&server.url(), lease).await,
        client_for(&server.url(), lease).await,
    );
    let name = fresh_name();
    let old = a.mutex(&name).lock().await.expect("free");
    assert_eq!(server.cli("FLUSHALL").trim(), "OK");
    let new = b.mutex(&name).lock().await.expect("free again");
    assert!(new.fence() > old.fence());
    assert_eq!(old.release().await.expect("an answer"), Released::WasLost);
    let third = a.mutex(&name).try_lock().await.expect("an answer");
    assert!(third.is_none(), "the next holder's lock was released");
    assert_eq!(new.release().await.expect("an answer"), Released::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_durable_server_keeps_holders_over_a_restart() {
    let mut server = Redis::durable();
    let lease = Duration::from_secs(10);
    let (a, b) = (
        client_for(&server.url(), lease).await,
        client_for(&server.url(), lease).await,
    );
    let (s, name) = (subject(&server.url()), fresh_name());
    let guard = a.mutex(&name).lock().await.expect("free");
    let waiter = tokio::spawn({
        let (b, name) = (b.clone(), name.clone());
        async move { b.mutex(&name).lock().await }
    });
    s.waiting(&name, 1).await;
    server.kill();
    server.restart();
    s.eventually("the holder is sure again", async || match guard.state() {
        GuardState::Valid => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(!waiter.is_finished(), "the waiter got in");
    let fence = guard.fence();
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    let next = s
        .soon("the waiter is granted", waiter)
        .await
        .expect("joined")
        .expect("granted");
    assert!(next.fence() > fence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_script_is_loaded_again() {
    let server = Redis::start();
    let (a, s, name) = (
        client(&server.url()).await,
        subject(&server.url()),
        fresh_name(),
    );
    for _ in 0..3 {
        assert_eq!(server.cli("SCRIPT FLUSH").trim(), "OK");
        let guard = a.mutex(&name).lock().await.expect("claimed");
        assert_eq!(server.cli("SCRIPT FLUSH").trim(), "OK");
        assert_eq!(guard.release().await.expect("released"), Released::Released);
    }
    let guard = a.mutex(&name).lock().await.expect("claimed");
    assert_eq!(server.cli("SCRIPT FLUSH").trim(), "OK");
    let before = guard.deadline();
    s.eventually("it is renewed", async || match guard.deadline() > before {
        true => Ok(()),
        false => Err(format!("{:?}", guard.state())),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_connections_are_made_again() {
    let server = Redis::start();
    let (a, b) = (client(&server.url()).await, client(&server.url()).await);
    let (s, name) = (subject(&server.url()), fresh_name());
    for _ in 0..5 {
        let guard = a.mutex(&name).lock().await.expect("granted");
        let waiter = tokio::spawn({
            let (b, name) = (b.clone(), name.clone());
            async move { b.mutex(&name).lock().await }
        });
        s.waiting(&name, 1).await;
        let _ = server.cli("CLIENT KILL TYPE normal SKIPME yes");
        let _ = server.cli("CLIENT KILL TYPE pubsub SKIPME yes");
        s.eventually("the holder is sure again", async || match guard.state() {
            GuardState::Valid => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        let _ = server.cli("CLIENT KILL TYPE pubsub SKIPME yes");
        // The release may be lost in the middle; then it is done in the background.
        let _ = guard.release().await;
        let next = s
            .soon("the waiter is granted", waiter)
            .await
            .expect("joined")
            .expect("granted");
        let _ = next.release().await.expect("released");
        s.idle(&name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_pause_is_survived_and_a_long_one_is_told_in_time() {
    let server = Redis::start();
    let a = client(&server.url()).await;
    let s = subject(&server.url());
    let (short, long) = (fresh_name(), fresh_name());
    let guard = a.mutex(&short).lock().await.expect("free");
    let before = guard.deadline();
    let _ = server.cli("CLIENT PAUSE 250 ALL");
    s.eventually("it is renewed", async || {
        match guard.deadline() > before + LEASE / 4 {
            true => Ok(()),
            false => Err(format!("{:?}", guard.state())),
        }
    })
    .await;
    assert_eq!(guard.state(), GuardState::Valid, "a pause below the lease");
    let other = a.mutex(&long).lock().await.expect("free");
    server.pause(true);
    let _ = lost(&other, LEASE + Duration::from_millis(200)).await;
    server.pause(false);
    let again = lock_again(&s, &a, &long).await;
    assert!(again.fence() > other.fence());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_refuses_newcomers_and_keeps_holders() {
    let server = Redis::start();
    let (a, s, name) = (
        client(&server.url()).await,
        subject(&server.url()),
        fresh_name(),
    );
    let guard = a.mutex(&name).lock().await.expect("free");
    assert_eq!(server.cli("CONFIG SET maxmemory 1").trim(), "OK");
    let refused = a
        .mutex(fresh_name())
        .try_lock()
        .await
        .expect_err("no memory");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(
        !refused.may_have_happened() && refused.to_string().contains("OOM"),
        "{refused}"
    );
    let start = guard.deadline();
    s.eventually("holders are renewed", async || {
        match guard.deadline() > start + LEASE {
            true => Ok(()),
            false => Err(format!("{:?}", guard.state())),
        }
    })
    .await;
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    assert_eq!(server.cli("CONFIG SET maxmemory 0").trim(), "OK");
    drop(lock_again(&s, &a, &name).await);
}

/// A hand-over needs no memory that the server does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_waiter_is_next_at_once_on_a_full_server_too() {
    let server = Redis::start();
    let lease = Duration::from_secs(30); // a heartbeat would come after 10 s
    let (a, b) = (
        client_for(&server.url(), lease).await,
        client_for(&server.url(), lease).await,
    );
    let (s, name) = (subject(&server.url()), fresh_name());
    for memory in ["0", "1"] {
        let held = a.mutex(&name).lock().await.expect("free");
        let waits = b.mutex(&name);
        let waiter = tokio::spawn(async move { waits.lock().await.expect("granted") });
        let key = server.cli("KEYS lh:{??}:*").trim().to_owned();
        s.eventually("it waits", async || {
            let kind = server.cli(&format!("TYPE {key}"));
            (kind.trim() == "hash").then_some(()).ok_or(kind)
        })
        .await;
        let _ = server.cli(&format!("CONFIG SET maxmemory {memory}"));
        let fence = held.fence();
        assert_eq!(held.release().await.expect("released"), Released::Released);
        let told = tokio::time::timeout(Duration::from_secs(5), waiter).await;
        let granted = told.expect("by push").expect("no panic");
        assert!(granted.fence() > fence, "fences grow");
        let _ = server.cli("CONFIG SET maxmemory 0");
        assert_eq!(
            granted.release().await.expect("released"),
            Released::Released
        );
        s.eventually("nothing is left", async || {
            let left = server.cli("KEYS *");
            left.trim().is_empty().then_some(()).ok_or(left)
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_throws_keys_away_is_refused() {
    let server = Redis::with("--save  --maxmemory 100mb --maxmemory-policy allkeys-lru");
    let refused = leasehold::connect(&server.url()).await.expect_err("unfit");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.to_string().contains("allkeys-lru"), "{refused}");
    let accepted = leasehold::connect(&format!("{}?evicting=1", server.url())).await;
    let _ = accepted.expect("as asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_ahead_ends_leases_and_fences_tell() {
    let server = Redis::with_clock();
    let (a, b, name) = (
        client(&server.url()).await,
        client(&server.url()).await,
        fresh_name(),
    );
    let guard = a.mutex(&name).lock().await.expect("free");
    server.step(3600);
    let other = b
        .mutex(&name)
        .try_lock()
        .await
        .expect("a try")
        .expect("its lease has ended there");
    assert!(other.fence() > guard.fence(), "the late one can be refused");
    let _ = lost(&guard, LEASE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_back_keeps_holders_and_fences_grow() {
    let server = Redis::with_clock();
    let (a, b, name) = (
        client(&server.url()).await,
        client(&server.url()).await,
        fresh_name(),
    );
    let guard = a.mutex(&name).lock().await.expect("free");
    server.step(-3600);
    assert!(
        b.mutex(&name).try_lock().await.expect("a try").is_none(),
        "still held"
    );
    let mut last = guard.fence();
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    for _ in 0..5 {
        let guard = b.mutex(&name).lock().await.expect("free");
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        last = guard.fence();
        let _ = guard.release().await.expect("released");
    }
}

#[tokio::test]
async fn guarantees_depend_on_the_deployment() {
    let server = Redis::start();
    let a = ConnectOptions::new()
        .require(Level::L2)
        .connect(&server.url())
        .await
        .expect("one server");
    println!("{}", a.guarantees().table_row());
    let refused = ConnectOptions::new()
        .require(Level::L3)
        .connect(&server.url())
        .await
        .expect_err("too much");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_names_leave_nothing_behind() {
    let server = Redis::start();
    let (a, s) = (client(&server.url()).await, subject(&server.url()));
    for at in 0..20 {
        let guard = a.mutex(format!("x{at}")).lock().await.expect("free");
        let _ = guard.release().await.expect("released");
    }
    // A holder that dies without a word: no client comes after it, and still nothing is left.
    let engine = Engine::from_url(&Url::parse(&server.url()).expect("a URL")).expect("an engine");
    let dead = ConnectOptions::new()
        .lease(LEASE)
        .open(std::sync::Arc::new(engine))
        .await
        .expect("open");
    let guard = dead
        .mutex("dead")
        .keep_alive(false)
        .lock()
        .await
        .expect("free");
    std::mem::forget(guard);
    assert_ne!(server.cli("DBSIZE").trim(), "0");
    s.eventually("nothing is left", async || {
        match server.cli("DBSIZE").trim() {
            "0" => Ok(()),
            _ => Err(server.cli("KEYS *")),
        }
    })
    .await;
}
