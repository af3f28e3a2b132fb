//! Curator: its own recipes besides.

use std::time::Duration;

use leasehold::{ErrorKind, GuardState, Released};
use leasehold_testkit::peers::java;
use leasehold_testkit::poll::until;

use super::{LEASE, LEASE_MS, Peer, server, waiting};

const CURATOR: Peer = Peer {
    start: || {
        let mut curator = java("curator");
        let _ = curator.args([&server().address(), LEASE_MS]);
        curator
    },
    root: "/curator",
};

super::both::tests!(CURATOR);

/// A name is one node, whatever is in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_a_slash_is_one_node() {
    let (client, mut curator) = (CURATOR.ours().await, CURATOR.process());
    let held = client.mutex("a/b").lock().await.expect("free");
    assert_eq!(curator.ask("try /curator/a%2Fb"), "busy");
    assert_eq!(curator.ask("try /curator/a/b"), "held");
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(curator.ask("try /curator/a%2Fb"), "held");
    assert!(
        client
            .mutex("a/b")
            .try_lock()
            .await
            .expect("a try")
            .is_none()
    );
}

/// It sees our nodes, and we see its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn participants_are_seen_both_ways() {
    let (client, mut curator) = (CURATOR.ours().await, CURATOR.process());
    assert_eq!(curator.ask(&CURATOR.on("lock", "seen")), "held");
    let mutex = client.mutex("seen");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "seen", 1).await;
    let participants = curator.ask(&CURATOR.on("participants", "seen"));
    assert_eq!(participants, "participants 2");
    let query = leasehold::engine::Query::name(leasehold::Name::new("seen").expect("a name"));
    let line = client.inspect(&query).await.expect("inspected").remove(0);
    assert_eq!((line.holders.len(), line.waiters.len()), (1, 1), "{line:?}");
    assert!(line.holders[0].who.is_none(), "Curator does not say");
    let fence = line.holders[0].fence.expect("it holds");
    let evicted = client.evict_fence("seen", fence, "it hangs").await;
    assert_eq!(evicted.expect("evicted"), 1, "Curator's can be evicted too");
    let held = waiter.await.expect("no panic").expect("granted");
    assert!(held.fence() > fence);
}

/// Curator's writer becomes a reader before our writer that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_downgrade_is_respected() {
    let (client, mut curator) = (CURATOR.ours().await, CURATOR.process());
    assert_eq!(curator.ask(&CURATOR.on("write", "down")), "held");
    let lock = client.rwlock("down");
    let writer = tokio::spawn(async move { lock.write().await });
    waiting(&client, "down", 1).await;
    assert_eq!(curator.ask(&CURATOR.on("read", "down")), "held");
    assert_eq!(
        curator.ask(&CURATOR.on("release-write", "down")),
        "released"
    );
    let other = CURATOR.ours().await.rwlock("down");
    assert!(other.try_write().await.expect("a try").is_none());
    assert!(!writer.is_finished(), "passed the reader");
    assert_eq!(curator.ask(&CURATOR.on("release-read", "down")), "released");
    drop(writer.await.expect("no panic").expect("granted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_counted_together() {
    let (client, mut curator) = (CURATOR.ours().await, CURATOR.process());
    let (one_of, two_of) = (
        CURATOR.on("permits", "s") + " 1 3",
        CURATOR.on("permits", "s") + " 2 3",
    );
    let semaphore = || client.semaphore("s", 3);
    let two = semaphore().acquire_many(2).await.expect("free");
    let tried = curator.ask(&(CURATOR.on("try-permits", "s") + " 2 3"));
    assert_eq!(tried, "busy");
    assert_eq!(curator.ask(&one_of), "held");
    assert!(semaphore().try_acquire().await.expect("a try").is_none());
    let queued = semaphore();
    let waiter = tokio::spawn(async move { queued.acquire().await });
    waiting(&client, "s", 1).await;
    assert_eq!(curator.ask(&CURATOR.on("release-permits", "s")), "released");
    let one = waiter.await.expect("no panic").expect("granted");
    curator.say(&two_of);
    waiting(&client, "s", 1).await;
    drop(two);
    assert_eq!(curator.hear(), "held");
    drop(one);
    let refused = client.mutex("s").lock().await;
    let refused = refused.expect_err("a mutex on a semaphore's name");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
}

/// Curator's `Revoker`: our guard is told, and holds until it releases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_asks_our_holder_to_give_up() {
    let (client, mut curator) = (CURATOR.ours().await, CURATOR.process());
    let held = client.mutex("asked").lock().await.expect("free");
    assert!(!held.is_release_requested());
    assert_eq!(curator.ask(&CURATOR.on("revoke", "asked")), "asked");
    let told = tokio::time::timeout(Duration::from_secs(30), held.release_requested()).await;
    told.expect("told");
    assert_eq!(held.state(), GuardState::Valid);
    assert_eq!(curator.ask(&CURATOR.on("try", "asked")), "busy");
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(curator.ask(&CURATOR.on("try", "asked")), "held");
}

/// A waiter that was asked is told within a third of its lease once it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_asks_our_waiter_to_give_up() {
    let (client, mut curator) = (CURATOR.ours().await, CURATOR.process());
    assert_eq!(curator.ask(&CURATOR.on("lock", "early")), "held");
    let mutex = client.mutex("early");
    let waiter = tokio::spawn(async move { mutex.lock().await });
    waiting(&client, "early", 1).await;
    assert_eq!(curator.ask(&CURATOR.on("revoke", "early")), "asked");
    assert_eq!(curator.ask(&CURATOR.on("release", "early")), "released");
    let held = waiter.await.expect("no panic").expect("granted");
    let told =
        tokio::time::timeout(LEASE / 3 + Duration::from_secs(1), held.release_requested()).await;
    told.expect("told");
}

/// Our request reaches Curator's `makeRevocable`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_ask_its_holder_to_give_up() {
    let (client, mut curator) = (CURATOR.ours().await, CURATOR.process());
    curator.say(&CURATOR.on("revocable", "ask"));
    assert_eq!(curator.hear(), "held");
    assert!(
        client
            .mutex("ask")
            .try_lock()
            .await
            .expect("a try")
            .is_none()
    );
    assert_eq!(client.ask_to_release("ask").await.expect("asked"), 1);
    assert_eq!(curator.hear(), "revoked");
    drop(client.mutex("ask").lock().await.expect("given up"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lingering_grant_is_given_up_when_it_asks() {
    let (client, mut curator) = (CURATOR.ours().await, CURATOR.process());
    let mutex = client.mutex("r").linger(Duration::from_secs(600));
    let _ = mutex.lock().await.expect("free").release().await;
    let participants = CURATOR.on("participants", "r");
    assert_eq!(curator.ask(&participants), "participants 1", "it lingers");
    assert_eq!(curator.ask(&CURATOR.on("revoke", "r")), "asked");
    until("given up", || match curator.ask(&participants).as_str() {
        "participants 0" => Ok(()),
        other => Err(other.to_owned()),
    });
}
