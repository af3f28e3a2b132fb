//! Messages of a user who may read keys and publish on every node.

use std::time::Duration;

use leasehold::conformance::fresh_name;
use leasehold::{ConnectOptions, GuardState};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::servers::redlock::Nodes;

const LEASE: Duration = Duration::from_millis(1_500);

/// Tells the holder of a name that it was evicted.
fn forge(node: &Redis, name: &str) {
    let key = node.cli(&format!("--raw KEYS lh:rl:{{??}}:{name}"));
    let holder = node.cli_args(&["--raw", "HMGET", key.trim(), "i", "s"]);
    let [id, session] = <[&str; 2]>::try_from(holder.lines().collect::<Vec<_>>())
        .expect("the holder and its session");
    let channel = format!("lh:rl:!{}", session.split('.').next().expect("a process"));
    let message = format!("E {id} {session} mallory because");
    let spy = [
        "--no-auth-warning",
        "--user",
        "spy",
        "--pass",
        "x",
        "PUBLISH",
        &channel,
        &message,
    ];
    assert_eq!(node.cli_args(&spy).lines().last(), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_eviction_takes_no_guard_and_a_true_one_is_told_at_once() {
    let nodes = Nodes::start(3);
    for node in &nodes.nodes {
        let rule = "ACL SETUSER spy on >x resetchannels &lh:* ~lh:* +@read +publish -@write";
        assert_eq!(node.cli(rule).trim(), "OK");
    }
    let connected = ConnectOptions::new()
        .lease(LEASE)
        .connect(&nodes.url())
        .await;
    let (client, name) = (connected.expect("connected"), fresh_name());
    let guard = client.mutex(&name).lock().await.expect("free");
    nodes.nodes.iter().for_each(|node| forge(node, &name));
    for _ in 0..3 {
        let before = guard.deadline();
        eventually("it is renewed", async || match guard.deadline() > before {
            true => Ok(()),
            false => Err(format!("{:?}", guard.state())),
        })
        .await;
    }
    assert_eq!(guard.state(), GuardState::Valid);
    let evicted = client.evict(&name, "a test").await;
    assert_eq!(evicted.expect("allowed"), 1);
    let lost = tokio::time::timeout(LEASE / 3, guard.lost()).await;
    let why = lost.expect("told, not found out").to_string();
    assert!(why.contains("a test"), "{why}");
}

/// A user who may write keys on one node of three: its vote is lost, and the other two keep the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_of_nodes_may_be_rewritten() {
    let nodes = Nodes::start(3);
    let connected = async || {
        ConnectOptions::new()
            .lease(LEASE)
            .connect(&nodes.url())
            .await
    };
    let (ours, theirs) = (connected().await, connected().await);
    let (ours, theirs) = (ours.expect("connected"), theirs.expect("connected"));
    let name = fresh_name();
    let guard = ours.mutex(&name).lock().await.expect("free");
    let bad = &nodes.nodes[0];
    let rule = "ACL SETUSER writer on >x resetchannels ~lh:* +del";
    assert_eq!(bad.cli(rule).trim(), "OK");
    for _ in 0..3 {
        let key = bad.cli(&format!("--raw KEYS lh:rl:{{??}}:{name}"));
        let delete = [
            "--no-auth-warning",
            "--user",
            "writer",
            "--pass",
            "x",
            "DEL",
            key.trim(),
        ];
        let _ = bad.cli_args(&delete);
        let busy = theirs
            .mutex(&name)
            .try_lock()
            .await
            .expect("a majority answers");
        assert!(busy.is_none(), "a second holder");
        let before = guard.deadline();
        eventually("it is renewed", async || match guard.deadline() > before {
            true => Ok(()),
            false => Err(format!("{:?}", guard.state())),
        })
        .await;
    }
    assert_eq!(guard.state(), GuardState::Valid);
}
