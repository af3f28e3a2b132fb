//! Checks for either library.

use std::time::Duration;

use leasehold::Released;

use super::{Peer, waiting};

pub(crate) async fn a_mutex_excludes_and_hands_over(with: Peer) {
    let (client, mut peer) = (with.ours().await, with.process());
    let held = client.mutex("m").lock().await.expect("free");
    assert_eq!(peer.ask(&with.on("try", "m")), "busy");
    peer.say(&with.on("lock", "m"));
    waiting(&client, "m", 1).await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(peer.hear(), "held");
    assert!(client.mutex("m").try_lock().await.expect("a try").is_none());
    let mutex = client.mutex("m");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "m", 1).await;
    assert_eq!(peer.ask(&with.on("release", "m")), "released");
    let held = waiter.await.expect("no panic").expect("granted");
    assert_eq!(peer.ask(&with.on("try", "m")), "busy");
    drop(held);
}

pub(crate) async fn readers_share_and_writers_exclude(with: Peer) {
    let (client, mut peer) = (with.ours().await, with.process());
    let lock = client.rwlock("rw");
    let reader = lock.read().await.expect("free");
    assert_eq!(peer.ask(&with.on("try-read", "rw")), "held");
    assert_eq!(peer.ask(&with.on("release-read", "rw")), "released");
    assert_eq!(peer.ask(&with.on("try-write", "rw")), "busy");
    peer.say(&with.on("write", "rw"));
    waiting(&client, "rw", 1).await;
    let other = with.ours().await.rwlock("rw");
    let passed = other.try_read().await.expect("a try");
    assert!(passed.is_none(), "passed a waiting writer");
    drop(reader);
    assert_eq!(peer.hear(), "held");
    assert!(lock.try_read().await.expect("a try").is_none());
    let queued = client.rwlock("rw");
    let writer = tokio::spawn(async move { queued.write().await });
    waiting(&client, "rw", 1).await;
    assert_eq!(peer.ask(&with.on("release-write", "rw")), "released");
    let writer = writer.await.expect("no panic").expect("granted");
    assert_eq!(peer.ask(&with.on("try-read", "rw")), "busy");
    let reader = writer.downgrade().await.expect("downgraded");
    assert_eq!(peer.ask(&with.on("try-write", "rw")), "busy");
    assert_eq!(peer.ask(&with.on("try-read", "rw")), "held");
    drop(reader);
    assert_eq!(peer.ask(&with.on("release-read", "rw")), "released");
    assert_eq!(peer.ask(&with.on("try-write", "rw")), "held");
}

pub(crate) async fn the_other_side_may_die(with: Peer) {
    let (client, mut peer) = (with.ours().await, with.process());
    assert_eq!(peer.ask(&with.on("lock", "crash")), "held");
    let mutex = client.mutex("crash");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "crash", 1).await;
    peer.kill();
    let held = waiter.await.expect("no panic");
    drop(held.expect("granted when the session ended"));
    let (mut locker, mut peer) = (with.locker(), with.process());
    assert!(locker.ask("lock crash").starts_with("held"));
    peer.say(&with.on("lock", "crash"));
    waiting(&client, "crash", 1).await;
    locker.kill();
    assert_eq!(peer.hear(), "held");
}

pub(crate) fn four_and_four_count_to_ten_thousand(with: Peer) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("number");
    std::fs::write(&file, "0").expect("writable");
    let mut lockers: Vec<_> = (0..4).map(|_| with.locker()).collect();
    let mut peers: Vec<_> = (0..4).map(|_| with.process()).collect();
    for locker in &mut lockers {
        locker.say(&format!("count n {} 1250", file.display()));
    }
    for peer in &mut peers {
        let count = with.on("count", "n");
        peer.say(&format!("{count} {} 1250", file.display()));
    }
    for process in lockers.iter().chain(&peers) {
        assert_eq!(process.hear_within(Duration::from_secs(300)), "counted");
    }
    let counted = std::fs::read_to_string(&file).expect("readable");
    assert_eq!(counted, "10000", "lost updates");
}

/// A test of every scenario, for one library.
macro_rules! tests {
    ($peer:expr) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn a_mutex_excludes_and_hands_over_both_ways() {
            super::both::a_mutex_excludes_and_hands_over($peer).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn readers_share_and_writers_exclude_both_ways() {
            super::both::readers_share_and_writers_exclude($peer).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn the_other_side_may_die() {
            super::both::the_other_side_may_die($peer).await;
        }

        #[test]
        fn four_and_four_count_to_ten_thousand() {
            super::both::four_and_four_count_to_ten_thousand($peer);
        }
    };
}

pub(crate) use tests;
