//! Rights of a Redis user: a wrong password, no more rights than are documented, rights that are taken away.
use std::time::Duration;

use leasehold::conformance::{Subject, fresh_name};
use leasehold::engine::{Query, Redis as Own, Redisson, Redlock, Url};
use leasehold::{Client, ConnectOptions, ErrorKind, GuardState, Name};
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::servers::redlock::let_vote;

const LEASE: Duration = Duration::from_millis(900);

async fn client(url: &str) -> Client {
    let connected = ConnectOptions::new().lease(LEASE).connect(url).await;
    connected.expect("connected")
}

fn subject(url: &str) -> Subject {
    let parsed = Url::parse(url).expect("a URL");
    match url {
        _ if url.starts_with("redlock:") => {
            Subject::new(Redlock::from_url(&parsed).expect("an engine"))
        }
        _ if url.contains("=redisson") => {
            Subject::new(Redisson::from_url(&parsed).expect("an engine"))
        }
        _ => Subject::new(Own::from_url(&parsed).expect("an engine")),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_is_denied_at_once_and_not_repeated() {
    let server = Redis::with("--save  --requirepass right");
    for url in [
        format!("redis://:hunter2@127.0.0.1:{}", server.port),
        format!("redis://app:hunter2@127.0.0.1:{}", server.port),
        format!("redis://127.0.0.1:{}", server.port),
    ] {
        let denied = leasehold::connect(&url).await.expect_err("wrong");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        assert!(!format!("{denied:?}").contains("hunter2"), "{denied:?}");
    }
    let right = format!("redis://:right@127.0.0.1:{}", server.port);
    drop(client(&right).await.mutex("x").lock().await.expect("free"));
}

const OWN: &str = include_str!("../../../leasehold/src/engines/redis/docs.md");
const REDISSON: &str = include_str!("../../../leasehold/src/engines/redis/redisson/docs.md");
const REDLOCK: &str = include_str!("../../../leasehold/src/engines/redis/redlock/docs.md");

/// Gives the user `leasehold` the rights that a `docs.md` gives, and no others.
fn give_rights(server: &Redis, docs: &str) {
    let line = docs
        .lines()
        .find_map(|line| line.trim().strip_prefix("ACL SETUSER "));
    let rule = line
        .expect("docs.md has the line")
        .replace("PASSWORD", "secret");
    let words: Vec<_> = ["ACL", "SETUSER"]
        .into_iter()
        .chain(rule.split(' '))
        .collect();
    assert_eq!(server.cli_args(&words).trim(), "OK", "{rule}");
}

/// Everything a client does to a mutex: it waits, renews, looks, evicts and releases.
async fn all_of_it(url: &str) {
    let (a, b) = (client(url).await, client(url).await);
    let (s, name) = (subject(url), fresh_name());
    let guard = a.mutex(&name).lock().await.expect("granted");
    let waiter = tokio::spawn({
        let (b, name) = (b.clone(), name.clone());
        async move { b.mutex(&name).lock().await }
    });
    let query = Query::name(Name::new(&name).expect("a name"));
    s.eventually("it waits", async || {
        let lines = b.inspect(&query).await.expect("allowed");
        let waiting = lines.first().is_some_and(|line| line.waiters.len() == 1);
        waiting.then_some(()).ok_or(format!("{lines:?}"))
    })
    .await;
    let before = guard.deadline();
    s.eventually("it is renewed", async || {
        (guard.deadline() > before)
            .then_some(())
            .ok_or(String::new())
    })
    .await;
    let all = a.inspect(&Query::all()).await.expect("allowed");
    assert_eq!(all.len(), 1);
    let evicted = a.evict(&name, "a test").await.expect("allowed");
    assert_eq!(evicted, 1);
    let next = s
        .soon("the waiter is granted", waiter)
        .await
        .expect("joined")
        .expect("granted");
    let _ = next.release().await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough() {
    let server = Redis::start();
    give_rights(&server, OWN);
    all_of_it(&format!(
        "redis://leasehold:secret@127.0.0.1:{}",
        server.port
    ))
    .await;
    let outside = ["--user", "leasehold", "--pass", "secret", "GET", "other"];
    assert!(
        server.cli_args(&outside).contains("NOPERM"),
        "nothing else is allowed"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoked_rights_are_told_before_another_client_gets_in() {
    let server = Redis::start();
    give_rights(&server, OWN);
    let (mine, others) = (
        format!("redis://leasehold:secret@127.0.0.1:{}", server.port),
        server.url(),
    );
    let (a, b, name) = (client(&mine).await, client(&others).await, fresh_name());
    let guard = std::sync::Arc::new(a.mutex(&name).lock().await.expect("free"));
    let waiter = tokio::spawn({
        let (name, first) = (name.clone(), guard.clone());
        async move {
            let next = b.mutex(&name).lock().await;
            (next, first.state())
        }
    });
    let s = subject(&others);
    s.waiting(&name, 1).await;
    assert_eq!(server.cli("ACL SETUSER leasehold off").trim(), "OK");
    let _ = server.cli("CLIENT KILL USER leasehold");
    drop(s.soon("it is told", guard.lost()).await);
    let (next, then) = s.soon("it passes on", waiter).await.expect("joined");
    let next = next.expect("granted");
    assert_eq!(then, GuardState::Lost, "told before the next got in");
    assert!(next.fence() > guard.fence());
    let denied = a
        .mutex(fresh_name())
        .try_lock()
        .await
        .expect_err("no rights");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_for_redissons_layout() {
    let server = Redis::start();
    give_rights(&server, REDISSON);
    for lock in ["plain", "fair", "fenced"] {
        let at = format!("redis://leasehold:secret@127.0.0.1:{}", server.port);
        all_of_it(&format!("{at}?layout=redisson&lock={lock}")).await;
        let _ = server.cli("FLUSHALL");
    }
    for semaphore in ["plain", "expirable"] {
        let at = format!("redis://leasehold:secret@127.0.0.1:{}", server.port);
        let client = client(&format!("{at}?layout=redisson&semaphore={semaphore}")).await;
        let lock = client.rwlock("rw");
        drop(lock.read().await.expect("allowed"));
        drop(lock.write().await.expect("allowed"));
        drop(
            client
                .semaphore(semaphore, 2)
                .acquire()
                .await
                .expect("allowed"),
        );
    }
    let outside = ["--user", "leasehold", "--pass", "secret", "FLUSHALL"];
    assert!(
        server.cli_args(&outside).contains("NOPERM"),
        "nothing else is allowed"
    );
}

/// Three nodes that speak TLS only, each with its own authority, and a user with the documented rights.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_for_redlock_with_tls() {
    let nodes: Vec<_> = (0..3).map(|_| Redis::tls()).collect();
    let (mut hosts, mut trusted) = (Vec::new(), Vec::new());
    for node in &nodes {
        let_vote(node);
        give_rights(node, REDLOCK);
        hosts.push(format!("localhost:{}", node.port));
        trusted.push(std::fs::read_to_string(node.ca()).expect("readable"));
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let ca = dir.path().join("authorities.pem");
    std::fs::write(&ca, trusted.concat()).expect("writable");
    let options = format!("tls=1&ca={}", ca.display());
    all_of_it(&format!(
        "redlock://leasehold:secret@{}?{options}",
        hosts.join(",")
    ))
    .await;
    for node in &nodes {
        let traces = node.cli("XRANGE lh:rl:evictions - +");
        assert!(
            traces.contains("a test"),
            "no trace of the eviction: {traces}"
        );
        let outside = ["--user", "leasehold", "--pass", "secret", "GET", "other"];
        assert!(node.cli_args(&outside).contains("NOPERM"));
    }
    let denied = ConnectOptions::new()
        .connect(&format!(
            "redlock://leasehold:wrong@{}?{options}",
            hosts.join(",")
        ))
        .await;
    assert_eq!(
        denied.expect_err("a wrong password").kind(),
        ErrorKind::Denied
    );
}
