//! `consul lock`, Go's `api.Lock` and `api.Semaphore`, and ours with `layout=consul` on one name: they exclude each other,
//! hand over to each other and survive each other.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::{Clock, Query};
use leasehold::{Client, ConnectOptions, ErrorKind, GuardState, Name, Released};
use leasehold_testkit::peers::go;
use leasehold_testkit::poll::eventually;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::consul::{Consul, program};
use rustix::process::Signal;

const LEASE: Duration = Duration::from_secs(2);
const LEASE_MS: &str = "2000";
/// Go refuses a shorter one.
const TTL: &str = "10s";

fn server() -> &'static Consul {
    static SERVER: OnceLock<Consul> = OnceLock::new();
    SERVER.get_or_init(Consul::start)
}

fn url() -> String {
    format!("{}?layout=consul", server().url())
}

async fn ours() -> Client {
    let opened = ConnectOptions::new().lease(LEASE).connect(&url()).await;
    opened.expect("connected")
}

/// A process of ours.
fn locker() -> Process {
    let mut locker = Command::new(env!("CARGO_BIN_EXE_locker"));
    let locker = Process::start(locker.args([&*url(), LEASE_MS]));
    assert_eq!(locker.hear(), "ready");
    locker
}

/// A process with Go's client.
fn peer() -> Process {
    let mut peer = go("consul");
    let peer = Process::start(peer.args([&*server().address(), TTL]));
    assert_eq!(peer.hear(), "ready");
    peer
}

/// `consul lock`, whose child says that it holds and stays until it is killed.
fn consul_lock(more: &[&str], name: &str) -> Process {
    let address = format!("-http-addr={}", server().address());
    let mut command = Command::new(program());
    let _ = command.arg("lock").arg(address).args(more).arg(name);
    Process::start(command.arg("echo held; exec sleep 600"))
}

/// Takes what is free, once it is.
async fn until_tried(client: &Client, name: &str) -> leasehold::Guard {
    eventually("it is free", async || {
        let tried = client.mutex(name).try_lock().await.expect("a try");
        tried.ok_or_else(|| "busy".to_owned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_excludes_and_hands_over_both_ways() {
    let (client, mut peer) = (ours().await, peer());
    let held = client.mutex("m").lock().await.expect("free");
    assert_eq!(peer.ask("try m/.lock"), "busy");
    peer.say("lock m/.lock");
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(peer.hear(), "held");
    assert!(client.mutex("m").try_lock().await.expect("a try").is_none());
    let mutex = client.mutex("m");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    assert_eq!(peer.ask("release m/.lock"), "released");
    let held = waiter.await.expect("no panic").expect("granted");
    assert_eq!(peer.ask("try m/.lock"), "busy");
    assert_eq!(held.state(), GuardState::Valid);
    assert_eq!(held.release().await.expect("released"), Released::Released);
}

/// The key of a mutex may be the name itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_any_key_is_reached() {
    let url = format!("{}/service?layout=consul&mutex_key=name", server().url());
    let client = leasehold::connect(&url).await.expect("connected");
    let mut peer = peer();
    assert_eq!(peer.ask("lock service/web/leader"), "held");
    let leader = client.mutex("web/leader");
    assert!(leader.try_lock().await.expect("a try").is_none());
    assert_eq!(peer.ask("release service/web/leader"), "released");
    let held = leader.lock().await.expect("free");
    assert_eq!(peer.ask("try service/web/leader"), "busy");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_lock_excludes_and_hands_over_both_ways() {
    let client = ours().await;
    let other = consul_lock(&[], "c");
    assert_eq!(other.hear(), "held");
    assert!(client.mutex("c").try_lock().await.expect("a try").is_none());
    let mutex = client.mutex("c");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    other.signal(Signal::TERM);
    let held = waiter.await.expect("no panic").expect("granted");
    let other = consul_lock(&[], "c");
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(other.hear(), "held");
    other.signal(Signal::TERM);
    drop(until_tried(&client, "c").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_counted_together() {
    let (client, mut one, mut two) = (ours().await, peer(), peer());
    let ours = client.semaphore("s", 3).acquire().await.expect("free");
    assert_eq!(one.ask("acquire s 3"), "held");
    let third = consul_lock(&["-n=3"], "s");
    assert_eq!(third.hear(), "held");
    let full = client.semaphore("s", 3).try_acquire().await;
    assert!(full.expect("a try").is_none(), "a fourth permit");
    two.say("acquire s 3");
    let _ = ours.release().await.expect("released");
    assert_eq!(two.hear(), "held");
    let semaphore = client.semaphore("s", 3);
    let waiter = tokio::spawn(async move { semaphore.acquire_many(2).await });
    assert_eq!(one.ask("release s"), "released");
    assert_eq!(two.ask("release s"), "released");
    let both = waiter.await.expect("no panic").expect("granted");
    assert!(two.ask("acquire s 4").starts_with("error"), "another limit");
    let refused = client.semaphore("s", 4).try_acquire().await;
    assert_eq!(refused.expect_err("limit").kind(), ErrorKind::Conflict);
    let refused = client.mutex("s").try_lock().await;
    assert_eq!(refused.expect_err("kind").kind(), ErrorKind::Conflict);
    drop(both);
    third.signal(Signal::TERM);
}

/// Go's sessions have a lock-delay of 15 s, ours have none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_side_may_die() {
    let (client, mut first) = (ours().await, peer());
    assert_eq!(first.ask("lock crash/.lock"), "held");
    let session = server().holder("crash/.lock").expect("it holds");
    first.kill();
    // As Consul does when the TTL is over: the lock-delay begins.
    let destroyed = server().ask("PUT", &format!("session/destroy/{session}"), "");
    assert_eq!(destroyed.expect("destroyed"), "true");
    let (mutex, clock) = (client.mutex("crash"), Clock::boot());
    let begun = clock.now();
    assert!(mutex.try_lock().await.expect("a try").is_none(), "delayed");
    let held = mutex.lock().await.expect("granted after the delay");
    let waited = Duration::from_micros(clock.now() - begun);
    assert!(waited > Duration::from_secs(10), "after {waited:?}");
    let _ = held.release().await.expect("released");
    let (mut locker, mut second) = (locker(), peer());
    assert!(locker.ask("lock crash").starts_with("held"));
    second.say("lock crash/.lock");
    locker.kill();
    assert_eq!(second.hear(), "held");
    assert_eq!(second.ask("release crash/.lock"), "released");
    let mut locker = self::locker();
    assert!(locker.ask("lock crash").starts_with("held"));
    let third = consul_lock(&[], "crash");
    locker.kill();
    assert_eq!(third.hear(), "held");
    third.signal(Signal::TERM);
}

/// A holder of permits dies: its permits go to the other side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_side_may_die_with_permits() {
    let (client, mut first, mut second) = (ours().await, peer(), peer());
    assert_eq!(first.ask("acquire dies 2"), "held");
    let keys = server().ask("GET", "kv/dies/?keys", "").expect("keys");
    let mut keys = keys.split('"').filter_map(|key| key.strip_prefix("dies/"));
    let session = keys.find(|key| *key != ".lock").expect("its key");
    let mine = client.semaphore("dies", 2).acquire().await.expect("free");
    let semaphore = client.semaphore("dies", 2);
    let waiter = tokio::spawn(async move { semaphore.acquire().await });
    first.kill();
    // As Consul does when the TTL is over.
    let destroyed = server().ask("PUT", &format!("session/destroy/{session}"), "");
    assert_eq!(destroyed.expect("destroyed"), "true");
    let passed_on = waiter.await.expect("no panic").expect("granted");
    drop((mine, passed_on));
    let mut locker = locker();
    eventually("both are free", async || {
        match locker.ask("permits dies 2 2") {
            held if held.starts_with("held") => Ok(()),
            other => Err(other),
        }
    })
    .await;
    second.say("acquire dies 2");
    locker.kill();
    assert_eq!(second.hear(), "held");
    assert_eq!(second.ask("release dies"), "released");
}

/// An eviction takes a lock from Go's holder too, and it is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_of_the_others_is_seen_and_evicted() {
    let (client, mut peer) = (ours().await, peer());
    assert_eq!(peer.ask("lock seen/.lock"), "held");
    let query = Query::name(Name::new("seen").expect("a name"));
    let lines = client.inspect(&query).await.expect("inspected");
    let fence = lines[0].holders[0].fence.expect("it holds");
    let evicted = client.evict_fence("seen", fence, "a test").await;
    assert_eq!(evicted.expect("evicted"), 1);
    assert_eq!(peer.ask("lost seen/.lock"), "lost");
    let held = client.mutex("seen").lock().await.expect("free");
    assert!(held.fence() > fence);
}

/// A key of another program is not overwritten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_no_lock_is_refused() {
    let client = ours().await;
    let _ = server()
        .ask("PUT", "kv/data/.lock", "precious")
        .expect("written");
    let refused = client.mutex("data").lock().await.expect_err("no lock");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    let refused = client.semaphore("data", 2).acquire().await;
    assert_eq!(refused.expect_err("no lock").kind(), ErrorKind::Conflict);
    let kept = server().ask("GET", "kv/data/.lock?raw", "").expect("there");
    assert_eq!(kept, "precious");
}

/// Consul ends the session: the guard is told, and Go's client gets in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_an_operator_destroys_is_told() {
    let (client, mut peer) = (ours().await, peer());
    let held = client.mutex("gone").lock().await.expect("free");
    let session = server().holder("gone/.lock").expect("it holds");
    let destroyed = server().ask("PUT", &format!("session/destroy/{session}"), "");
    assert_eq!(destroyed.expect("destroyed"), "true");
    let lost = tokio::time::timeout(LEASE * 2, held.lost()).await;
    assert!(lost.expect("told").is_lost());
    assert_eq!(peer.ask("lock gone/.lock"), "held");
    assert_eq!(held.release().await.expect("a release"), Released::WasLost);
    assert!(
        client
            .mutex("gone")
            .try_lock()
            .await
            .expect("a try")
            .is_none()
    );
}

#[test]
fn four_and_four_count_to_ten_thousand() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("number");
    std::fs::write(&file, "0").expect("writable");
    let mut lockers: Vec<_> = (0..4).map(|_| locker()).collect();
    let mut peers: Vec<_> = (0..4).map(|_| peer()).collect();
    for locker in &mut lockers {
        locker.say(&format!("count n {} 1250", file.display()));
    }
    for peer in &mut peers {
        peer.say(&format!("count n/.lock {} 1250", file.display()));
    }
    for process in lockers.iter().chain(&peers) {
        assert_eq!(process.hear_within(Duration::from_secs(500)), "counted");
    }
    let counted = std::fs::read_to_string(&file).expect("readable");
    assert_eq!(counted, "10000", "lost updates");
}
