//! Go's `concurrency.Mutex`, `etcdctl lock` and ours on one name: they exclude each other, hand over to each other and
//! survive each other.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, ConnectOptions, Name, Released};
use leasehold_testkit::peers::go;
use leasehold_testkit::poll::eventually;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::etcd::Etcd;

const LEASE: Duration = Duration::from_secs(3);
const LEASE_MS: &str = "3000";

fn server() -> &'static Etcd {
    static SERVER: OnceLock<Etcd> = OnceLock::new();
    SERVER.get_or_init(Etcd::start)
}

async fn ours() -> Client {
    let opened = ConnectOptions::new()
        .lease(LEASE)
        .connect(&server().url())
        .await;
    opened.expect("connected")
}

/// A process of ours.
fn locker() -> Process {
    let mut locker = Command::new(env!("CARGO_BIN_EXE_locker"));
    let locker = Process::start(locker.args([&*server().url(), LEASE_MS]));
    assert_eq!(locker.hear(), "ready");
    locker
}

/// A process with Go's client and a session of three seconds.
fn peer() -> Process {
    let mut peer = go("etcd");
    let peer = Process::start(peer.args([&*server().address(), "3"]));
    assert_eq!(peer.hear(), "ready");
    peer
}

/// `etcdctl lock`, which says its key once it holds.
fn ctl(name: &str) -> Process {
    Process::start(server().ctl().args(["lock", "--ttl=3", name]))
}

/// Waits until so many wait for a name.
async fn waiting(client: &Client, name: &str, count: usize) {
    let query = Query::name(Name::new(name).expect("a name"));
    eventually("so many wait", async || {
        let lines = client.inspect(&query).await.expect("inspected");
        match lines.first().map_or(0, |line| line.waiters.len()) {
            seen if seen == count => Ok(()),
            seen => Err(format!("{seen} wait for {name}, {count} wanted")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_excludes_and_hands_over_both_ways() {
    let (client, mut peer) = (ours().await, peer());
    let held = client.mutex("m").lock().await.expect("free");
    assert_eq!(peer.ask("try m"), "busy");
    peer.say("lock m");
    waiting(&client, "m", 1).await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(peer.hear(), "held");
    assert!(client.mutex("m").try_lock().await.expect("a try").is_none());
    let mutex = client.mutex("m");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "m", 1).await;
    assert_eq!(peer.ask("release m"), "released");
    let held = waiter.await.expect("no panic").expect("granted");
    assert_eq!(peer.ask("try m"), "busy");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_excludes_and_hands_over_both_ways() {
    let client = ours().await;
    let other = ctl("c");
    assert!(other.hear().starts_with("c/"), "its key");
    assert!(client.mutex("c").try_lock().await.expect("a try").is_none());
    let mutex = client.mutex("c");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "c", 1).await;
    other.signal(rustix::process::Signal::INT);
    let held = waiter.await.expect("no panic").expect("granted");
    let other = ctl("c");
    waiting(&client, "c", 1).await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert!(other.hear().starts_with("c/"), "its key");
    other.kill();
}

/// It waits for a writer that goes on as a reader, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_waits_for_a_reader_that_was_a_writer() {
    let client = ours().await;
    let dir = tempfile::tempdir().expect("a directory");
    let held = dir.path().join("held");
    let writer = client.rwlock("d").write().await.expect("free");
    let mut ctl = server().ctl();
    let ctl = ctl.args(["lock", "--ttl=3", "d", "touch"]).arg(&held);
    let other = Process::start(ctl);
    waiting(&client, "d", 1).await;
    let reader = writer.downgrade().await.expect("it is held");
    // Time enough for an event to reach it.
    for _ in 0..50 {
        let between = client.mutex("between").lock().await.expect("free");
        let _ = between.release().await.expect("released");
        assert!(!held.exists(), "etcdctl holds beside a reader");
    }
    assert_eq!(
        reader.release().await.expect("released"),
        Released::Released
    );
    eventually("etcdctl holds", async || match held.exists() {
        true => Ok(()),
        false => Err("it waits".to_owned()),
    })
    .await;
    drop(other);
}

/// A name of ours with a prefix is a name of theirs with a slash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_is_the_start_of_the_others_names() {
    let url = format!("{}?prefix=/services/", server().url());
    let client = ConnectOptions::new().lease(LEASE).connect(&url).await;
    let client = client.expect("connected");
    let mut peer = peer();
    assert_eq!(peer.ask("lock /services/billing"), "held");
    let billing = client.mutex("billing");
    assert!(billing.try_lock().await.expect("a try").is_none());
    assert_eq!(peer.ask("release /services/billing"), "released");
    let held = billing.lock().await.expect("free");
    assert_eq!(peer.ask("try /services/billing"), "busy");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_side_may_die() {
    let (client, mut first) = (ours().await, peer());
    assert_eq!(first.ask("lock crash"), "held");
    let mutex = client.mutex("crash");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "crash", 1).await;
    first.kill();
    let held = waiter.await.expect("no panic");
    drop(held.expect("granted when the lease ended"));
    let (mut locker, mut second) = (locker(), peer());
    assert!(locker.ask("lock crash").starts_with("held"));
    second.say("lock crash");
    waiting(&client, "crash", 1).await;
    locker.kill();
    assert_eq!(second.hear(), "held");
    let third = ctl("crash");
    waiting(&client, "crash", 1).await;
    second.kill();
    assert!(third.hear().starts_with("crash/"), "its key");
    third.kill();
}

/// An eviction takes a lock from Go's holder too; its key is not the key of its next claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_of_the_others_is_seen_and_evicted() {
    let (client, mut peer) = (ours().await, peer());
    assert_eq!(peer.ask("lock seen"), "held");
    let query = Query::name(Name::new("seen").expect("a name"));
    let lines = client.inspect(&query).await.expect("inspected");
    let fence = lines[0].holders[0].fence.expect("it holds");
    let asked = client.ask_to_release("seen").await;
    assert_eq!(asked.expect("an answer"), 0, "it cannot be told");
    let evicted = client.evict_fence("seen", fence, "a test").await;
    assert_eq!(evicted.expect("evicted"), 1);
    let held = client.mutex("seen").lock().await.expect("free");
    assert!(held.fence() > fence);
}

#[test]
fn four_and_four_count_to_ten_thousand() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("number");
    std::fs::write(&file, "0").expect("writable");
    let mut lockers: Vec<_> = (0..4).map(|_| locker()).collect();
    let mut peers: Vec<_> = (0..4).map(|_| peer()).collect();
    for process in lockers.iter_mut().chain(&mut peers) {
        process.say(&format!("count n {} 1250", file.display()));
    }
    for process in lockers.iter().chain(&peers) {
        assert_eq!(process.hear_within(Duration::from_secs(300)), "counted");
    }
    let counted = std::fs::read_to_string(&file).expect("readable");
    assert_eq!(counted, "10000", "lost updates");
}
