//! Curator's locks and ours on one path: they exclude each other, hand over to each other and survive each other.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::{Client, Options, Released};
use leasehold_testkit::peers::java;
use leasehold_testkit::poll::until;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::zookeeper::ZooKeeper;

const SESSION_MS: &str = "3000";
const LEASE: Duration = Duration::from_secs(3);

fn server() -> &'static ZooKeeper {
    static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
    SERVER.get_or_init(ZooKeeper::start)
}

fn curator() -> Process {
    let curator = Process::start(java("curator").args([&server().address(), SESSION_MS]));
    assert_eq!(curator.hear(), "ready");
    curator
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
    let (client, mut curator) = (ours().await, curator());
    let held = client.mutex("m").lock().await.expect("free");
    assert_eq!(curator.ask("try /locks/m"), "busy");
    curator.say("lock /locks/m");
    waiting(&client, "m", 1).await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(curator.hear(), "held");
    assert!(client.mutex("m").try_lock().await.expect("a try").is_none());
    let mutex = client.mutex("m");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "m", 1).await;
    assert_eq!(curator.ask("participants /locks/m"), "participants 2");
    assert_eq!(curator.ask("release /locks/m"), "released");
    let held = waiter.await.expect("no panic").expect("granted");
    assert_eq!(curator.ask("try /locks/m"), "busy");
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_writers_exclude_both_ways() {
    let (client, mut curator) = (ours().await, curator());
    let lock = client.rwlock("rw");
    let reader = lock.read().await.expect("free");
    assert_eq!(curator.ask("try-read /locks/rw"), "held");
    assert_eq!(curator.ask("release-read /locks/rw"), "released");
    assert_eq!(curator.ask("try-write /locks/rw"), "busy");
    curator.say("write /locks/rw");
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
    assert_eq!(curator.hear(), "held");
    assert!(lock.try_read().await.expect("a try").is_none());
    let queued = client.rwlock("rw");
    let writer = tokio::spawn(async move { queued.write().await });
    waiting(&client, "rw", 1).await;
    assert_eq!(curator.ask("read /locks/rw"), "held", "Curator's downgrade");
    assert_eq!(curator.ask("release-write /locks/rw"), "released");
    assert!(
        !writer.is_finished(),
        "a writer passed the reader that a writer became"
    );
    assert_eq!(curator.ask("release-read /locks/rw"), "released");
    let writer = writer.await.expect("no panic").expect("granted");
    assert_eq!(curator.ask("try-read /locks/rw"), "busy");
    let reader = writer.downgrade().await.expect("downgraded");
    assert_eq!(curator.ask("try-write /locks/rw"), "busy");
    assert_eq!(curator.ask("try-read /locks/rw"), "held");
    drop(reader);
    assert_eq!(curator.ask("release-read /locks/rw"), "released");
    assert_eq!(curator.ask("try-write /locks/rw"), "held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_counted_together() {
    let (client, mut curator) = (ours().await, curator());
    let two = client
        .semaphore("s", 3)
        .acquire_many(2)
        .await
        .expect("free");
    assert_eq!(curator.ask("try-permits /locks/s 2 3"), "busy");
    assert_eq!(curator.ask("permits /locks/s 1 3"), "held");
    assert!(
        client
            .semaphore("s", 3)
            .try_acquire()
            .await
            .expect("a try")
            .is_none()
    );
    let semaphore = client.semaphore("s", 3);
    let waiter = tokio::spawn(async move { semaphore.acquire().await });
    waiting(&client, "s", 1).await;
    assert_eq!(curator.ask("release-permits /locks/s"), "released");
    let one = waiter.await.expect("no panic").expect("granted");
    curator.say("permits /locks/s 2 3");
    waiting(&client, "s", 1).await;
    drop(two);
    assert_eq!(curator.hear(), "held");
    drop(one);
    let refused = client
        .mutex("s")
        .lock()
        .await
        .expect_err("a mutex on a semaphore's name");
    assert_eq!(refused.kind(), leasehold::ErrorKind::Conflict, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_side_may_die() {
    let (client, mut curator) = (ours().await, curator());
    assert_eq!(curator.ask("lock /locks/crash"), "held");
    let mutex = client.mutex("crash");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "crash", 1).await;
    curator.kill();
    let held = waiter
        .await
        .expect("no panic")
        .expect("granted when the session ended");
    drop(held);
    let (mut locker, mut curator) = (locker(), self::curator());
    assert!(locker.ask("lock crash").starts_with("held"));
    curator.say("lock /locks/crash");
    waiting(&client, "crash", 1).await;
    locker.kill();
    assert_eq!(curator.hear(), "held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lingering_grant_is_given_up_when_curator_asks() {
    let (client, mut curator) = (ours().await, curator());
    let mutex = client.mutex("r").linger(Duration::from_secs(600));
    let _ = mutex
        .lock()
        .await
        .expect("free")
        .release()
        .await
        .expect("released");
    assert_eq!(
        curator.ask("participants /locks/r"),
        "participants 1",
        "it lingers"
    );
    assert_eq!(curator.ask("revoke /locks/r"), "asked");
    until("given up", || {
        match curator.ask("participants /locks/r").as_str() {
            "participants 0" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_and_four_count_to_ten_thousand() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("number");
    std::fs::write(&file, "0").expect("writable");
    let mut lockers: Vec<_> = (0..4).map(|_| locker()).collect();
    let mut curators: Vec<_> = (0..4).map(|_| curator()).collect();
    for locker in &mut lockers {
        locker.say(&format!("count n {} 1250", file.display()));
    }
    for curator in &mut curators {
        curator.say(&format!("count /locks/n {} 1250", file.display()));
    }
    for process in lockers.iter().chain(&curators) {
        assert_eq!(process.hear_within(Duration::from_secs(120)), "counted");
    }
    let counted = std::fs::read_to_string(&file).expect("readable");
    assert_eq!(counted, "10000", "lost updates");
}
