//! kazoo's locks, with Curator's node names, and ours on one path: they exclude each other, hand over to each other and survive each other.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::{Client, Options, Released};
use leasehold_testkit::peers::python;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::zookeeper::ZooKeeper;

const SESSION_MS: &str = "3000";
const LEASE: Duration = Duration::from_secs(3);

fn server() -> &'static ZooKeeper {
    static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
    SERVER.get_or_init(ZooKeeper::start)
}

fn kazoo() -> Process {
    let kazoo = Process::start(python("kazoo").args([&server().address(), "3"]));
    assert_eq!(kazoo.hear(), "ready");
    kazoo
}

async fn ours() -> Client {
    let url = format!("{}/locks", server().url());
    Options::new()
        .lease(LEASE)
        .connect(&url)
        .await
        .expect("connected")
}

fn locker() -> Process {
    let url = format!("{}/locks", server().url());
    let locker = Process::start(
        std::process::Command::new(env!("CARGO_BIN_EXE_locker")).args([&url, SESSION_MS]),
    );
    assert_eq!(locker.hear(), "ready");
    locker
}

/// Waits until so many wait for a name.
async fn waiting(client: &Client, name: &str, count: usize) {
    let name = leasehold::Name::new(name).expect("a name");
    loop {
        let lines = client
            .inspect(&leasehold::engine::Query::name(name.clone()))
            .await;
        let lines = lines.expect("inspected");
        if lines.first().map_or(0, |line| line.waiters.len()) == count {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_excludes_and_hands_over_both_ways() {
    let (client, mut kazoo) = (ours().await, kazoo());
    let held = client.mutex("m").lock().await.expect("free");
    assert_eq!(kazoo.ask("try /locks/m"), "busy");
    kazoo.say("lock /locks/m");
    waiting(&client, "m", 1).await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(kazoo.hear(), "held");
    assert!(client.mutex("m").try_lock().await.expect("a try").is_none());
    let mutex = client.mutex("m");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "m", 1).await;
    assert_eq!(kazoo.ask("release /locks/m"), "released");
    let held = waiter.await.expect("no panic").expect("granted");
    assert_eq!(kazoo.ask("try /locks/m"), "busy");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_writers_exclude_both_ways() {
    let (client, mut kazoo) = (ours().await, kazoo());
    let lock = client.rwlock("rw");
    let reader = lock.read().await.expect("free");
    assert_eq!(kazoo.ask("try-read /locks/rw"), "held");
    assert_eq!(kazoo.ask("release-read /locks/rw"), "released");
    assert_eq!(kazoo.ask("try-write /locks/rw"), "busy");
    kazoo.say("write /locks/rw");
    waiting(&client, "rw", 1).await;
    let other = ours().await;
    assert!(
        other
            .rwlock("rw")
            .try_read()
            .await
            .expect("a try")
            .is_none(),
        "passed a waiting writer"
    );
    drop(reader);
    assert_eq!(kazoo.hear(), "held");
    assert!(lock.try_read().await.expect("a try").is_none());
    let queued = client.rwlock("rw");
    let writer = tokio::spawn(async move { queued.write().await });
    waiting(&client, "rw", 1).await;
    assert_eq!(kazoo.ask("release-write /locks/rw"), "released");
    let writer = writer.await.expect("no panic").expect("granted");
    assert_eq!(kazoo.ask("try-read /locks/rw"), "busy");
    let reader = writer.downgrade().await.expect("downgraded");
    assert_eq!(kazoo.ask("try-write /locks/rw"), "busy");
    assert_eq!(kazoo.ask("try-read /locks/rw"), "held");
    drop(reader);
    assert_eq!(kazoo.ask("release-read /locks/rw"), "released");
    assert_eq!(kazoo.ask("try-write /locks/rw"), "held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_side_may_die() {
    let (client, mut kazoo) = (ours().await, kazoo());
    assert_eq!(kazoo.ask("lock /locks/crash"), "held");
    let mutex = client.mutex("crash");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "crash", 1).await;
    kazoo.kill();
    let held = waiter
        .await
        .expect("no panic")
        .expect("granted when the session ended");
    drop(held);
    let (mut locker, mut kazoo) = (locker(), self::kazoo());
    assert!(locker.ask("lock crash").starts_with("held"));
    kazoo.say("lock /locks/crash");
    waiting(&client, "crash", 1).await;
    locker.kill();
    assert_eq!(kazoo.hear(), "held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_and_four_count_to_ten_thousand() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("number");
    std::fs::write(&file, "0").expect("writable");
    let mut lockers: Vec<_> = (0..4).map(|_| locker()).collect();
    let mut kazoos: Vec<_> = (0..4).map(|_| kazoo()).collect();
    for locker in &mut lockers {
        locker.say(&format!("count n {} 1250", file.display()));
    }
    for kazoo in &mut kazoos {
        kazoo.say(&format!("count /locks/n {} 1250", file.display()));
    }
    for process in lockers.iter().chain(&kazoos) {
        assert_eq!(process.hear_within(Duration::from_secs(120)), "counted");
    }
    let counted = std::fs::read_to_string(&file).expect("readable");
    assert_eq!(counted, "10000", "lost updates");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kazoo_with_its_own_node_names_is_refused_not_ignored() {
    let (client, mut kazoo) = (ours().await, kazoo());
    assert_eq!(kazoo.ask("lock-plain /locks/plain"), "held");
    let refused = client
        .mutex("plain")
        .lock()
        .await
        .expect_err("it would not see us");
    assert_eq!(refused.kind(), leasehold::ErrorKind::Conflict, "{refused}");
    assert!(refused.to_string().contains("kazoo"), "{refused}");
    assert_eq!(kazoo.ask("release-plain /locks/plain"), "released");
    drop(client.mutex("plain").lock().await.expect("free"));
}
