//! Clients without the login of the holder: with `acl=creator` they are kept out, without it they can do anything.

use leasehold::engine::Query;
use leasehold::{ConnectOptions, ErrorKind, GuardState, Name};
use leasehold_testkit::servers::zookeeper::ZooKeeper;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_acl_creator_others_neither_see_nor_take_nor_block() {
    let server = ZooKeeper::start();
    let address = server.address();
    let url = format!("zookeeper://me:hunter2@{address}/private?acl=creator");
    let mine = leasehold::connect(&url).await.expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let query = Query::name(Name::new("x").expect("a name"));
    for login in ["", "you:hunter3@"] {
        // A stranger may be refused when it connects: it has no right to the directory of the locks.
        let url = format!("zookeeper://{login}{address}/private");
        let Ok(other) = ConnectOptions::new().connect(&url).await else {
            continue;
        };
        let seen = other.inspect(&query).await;
        assert_eq!(seen.expect_err("seen").kind(), ErrorKind::Denied);
        let evicted = other.evict("x", "a test").await;
        assert_eq!(evicted.expect_err("evicted").kind(), ErrorKind::Denied);
        let claimed = other.mutex("x").lock().await;
        assert_eq!(claimed.expect_err("claimed").kind(), ErrorKind::Denied);
        let new = other.mutex("new").lock().await;
        assert_eq!(new.expect_err("made").kind(), ErrorKind::Denied);
    }
    assert_eq!(guard.state(), GuardState::Valid);
    let _ = guard.release().await.expect("released");
}

/// Curator's default. The holder is told who and why, as the other client says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_acl_every_client_can_take_a_lock_away() {
    let server = ZooKeeper::start();
    let mine = leasehold::connect(&server.url()).await.expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let other = leasehold::connect(&server.url()).await.expect("connected");
    let evicted = other.evict("x", "a test").await;
    assert_eq!(evicted.expect("allowed"), 1);
    let why = guard.lost().await.to_string();
    assert!(why.contains("a test"), "{why}");
    let next = other.mutex("x").lock().await.expect("free");
    assert!(next.fence() > guard.fence());
}
