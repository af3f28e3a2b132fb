//! Several Redis servers: a master that dies below Sentinel, replicas that lag, a shard that is silent.
use std::sync::Arc;
use std::time::Duration;

use leasehold::conformance::{Subject, fresh_name};
use leasehold::engine::{Redis as Engine, Url};
use leasehold::{Client, ConnectOptions, ErrorKind, Guard, GuardState};
use leasehold_testkit::poll::PATIENCE;
use leasehold_testkit::servers::redis::{Cluster, Sentinels};

async fn client(url: &str, lease: Duration) -> Client {
    ConnectOptions::new()
        .lease(lease)
        .connect(url)
        .await
        .expect("connected")
}

fn subject(url: &str) -> Subject {
    let mut subject =
        Subject::new(Engine::from_url(&Url::parse(url).expect("a URL")).expect("an engine"));
    subject.patience = PATIENCE;
    subject
}

/// Asks until it is granted; there may be no master for a while.
async fn lock_again(s: &Subject, client: &Client, name: &str) -> Guard {
    s.eventually("it can be locked again", async || {
        let tried = client.mutex(name).lock_within(Duration::from_secs(2)).await;
        tried
            .map_err(|error| error.to_string())?
            .ok_or("busy".to_owned())
    })
    .await
}

async fn new_master(s: &Subject, servers: &Sentinels, old: u16) {
    s.eventually("another master", async || match servers.master() {
        port if port != old && port != 0 => Ok(()),
        port => Err(format!("{port}; {}", servers.said())),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_lost_the_lock_is_told_and_fences_grow() {
    let mut servers = Sentinels::start();
    let url = servers.url();
    let (lease, name, s) = (Duration::from_secs(30), fresh_name(), subject(&url));
    let (a, b) = (client(&url, lease).await, client(&url, lease).await);
    // The next master does not know of writes that the replicas do not hear.
    servers.nodes[1].pause(true);
    servers.nodes[2].pause(true);
    let _ = servers.nodes[0].cli("CLIENT KILL TYPE replica");
    let guard = a.mutex(&name).lock().await.expect("free");
    let old = servers.nodes[0].port;
    servers.nodes[0].kill();
    servers.nodes[1].pause(false);
    servers.nodes[2].pause(false);
    new_master(&s, &servers, old).await;
    let other = lock_again(&s, &b, &name).await;
    assert!(other.fence() > guard.fence(), "the late one can be refused");
    let why = s.soon("it is told", guard.lost()).await;
    println!("told: {why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_all_replicas_have_survives_a_failover() {
    let mut servers = Sentinels::start();
    let url = format!("{}?replicas=2", servers.url());
    let (lease, name, s) = (Duration::from_secs(30), fresh_name(), subject(&url));
    let (a, b) = (
        client(&url, lease).await,
        client(&servers.url(), lease).await,
    );
    // A replica may be late on a busy machine; then nothing is granted.
    let guard = lock_again(&s, &a, &name).await;
    let old = servers.nodes[0].port;
    servers.nodes[0].kill();
    new_master(&s, &servers, old).await;
    drop(lock_again(&s, &b, &fresh_name()).await);
    assert!(
        b.mutex(&name).try_lock().await.expect("a try").is_none(),
        "still held"
    );
    assert_ne!(guard.state(), GuardState::Lost);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_too_few_replicas_have_is_not_told() {
    let servers = Sentinels::start();
    let url = format!("{}?replicas=1&timeout=1000", servers.url());
    let (lease, name, s) = (Duration::from_secs(5), fresh_name(), subject(&url));
    let a = client(&url, lease).await;
    let first = lock_again(&s, &a, &name).await;
    let waiter = tokio::spawn({
        let (b, name) = (client(&url, lease).await, name.clone());
        async move { b.mutex(&name).lock().await }
    });
    s.waiting(&name, 1).await;
    let _ = first.release().await.expect("released");
    let pushed = s
        .soon("a pushed grant is told too", waiter)
        .await
        .expect("joined")
        .expect("granted");
    let _ = pushed.release().await.expect("released");
    servers.nodes[1].pause(true);
    servers.nodes[2].pause(true);
    let refused = a
        .mutex(&name)
        .try_lock()
        .await
        .expect_err("no replica has it");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(
        refused.may_have_happened() && refused.to_string().contains("replicas"),
        "{refused}"
    );
    servers.nodes[1].pause(false);
    servers.nodes[2].pause(false);
    drop(lock_again(&s, &a, &name).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_shard_does_not_starve_the_others() {
    let servers = Cluster::start();
    let lease = Duration::from_millis(1500);
    let (a, s) = (client(&servers.url(), lease).await, subject(&servers.url()));
    let mut guards = Vec::new();
    for _ in 0..24 {
        guards.push(a.mutex(fresh_name()).lock().await.expect("free"));
    }
    let latest = guards.iter().map(Guard::deadline).max().expect("guards");
    servers.nodes[1].pause(true);
    // The silent one's locks are lost, and told; the others are renewed long after that.
    s.eventually("every lock is lost or renewed", async || {
        let lost = guards
            .iter()
            .filter(|guard| guard.state() == GuardState::Lost);
        let renewed = guards
            .iter()
            .filter(|guard| guard.deadline() > latest + lease * 2);
        let (lost, renewed) = (lost.count(), renewed.count());
        (lost > 0 && lost + renewed == guards.len())
            .then_some(())
            .ok_or(format!("{lost} lost, {renewed} renewed"))
    })
    .await;
    let lost = guards
        .iter()
        .filter(|guard| guard.state() == GuardState::Lost)
        .count();
    println!("{lost} of {} locks were on the silent shard", guards.len());
    assert!((1..=16).contains(&lost), "{lost} lost");
    servers.nodes[1].pause(false);
    for guard in &guards {
        if guard.state() == GuardState::Lost {
            drop(lock_again(&s, &a, guard.name().as_str()).await);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_are_followed() {
    let servers = Arc::new(Cluster::start());
    let lease = Duration::from_secs(3);
    let (a, b) = (
        client(&servers.url(), lease).await,
        client(&servers.url(), lease).await,
    );
    let (s, name) = (subject(&servers.url()), fresh_name());
    let guard = a.mutex(&name).lock().await.expect("free");
    let waiter = tokio::spawn({
        let (b, name) = (b.clone(), name.clone());
        async move { b.mutex(&name).lock().await }
    });
    s.waiting(&name, 1).await;
    let moved = tokio::task::spawn_blocking({
        let servers = servers.clone();
        move || servers.rebalance()
    });
    let said = moved.await.expect("joined");
    assert!(
        said.contains("[OK]") || said.contains("Moving") || said.contains('#'),
        "{said}"
    );
    let fence = guard.fence();
    let before = guard.deadline();
    s.eventually("it is renewed where it is now", async || {
        (guard.deadline() > before)
            .then_some(())
            .ok_or(format!("{:?}", guard.state()))
    })
    .await;
    let _ = guard.release().await.expect("released");
    let next = s
        .soon("the waiter is granted", waiter)
        .await
        .expect("joined")
        .expect("granted");
    assert!(next.fence() > fence);
}

/// A master of a cluster dies and its replica takes over: locks there are kept or told as lost, the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_of_a_cluster_that_dies_is_replaced() {
    let mut servers = Cluster::with_replicas();
    let lease = Duration::from_secs(20);
    let (url, s) = (servers.url(), subject(&servers.url()));
    let (a, b) = (client(&url, lease).await, client(&url, lease).await);
    let mut guards = Vec::new();
    for _ in 0..12 {
        guards.push(a.mutex(fresh_name()).lock().await.expect("free"));
    }
    // What its replica has not heard of is gone with a master.
    servers.replicas_have_all();
    let masters: Vec<_> = (0..6).filter(|at| servers.is_master(*at)).collect();
    let dead = masters[0];
    servers.nodes[dead].kill();
    s.eventually("a replica takes over", async || {
        let now = (0..6).filter(|at| *at != dead && servers.is_master(*at));
        let now: Vec<_> = now.collect();
        (now.len() == 3).then_some(()).ok_or(format!("{now:?}"))
    })
    .await;
    let before = guards.iter().map(Guard::deadline).max().expect("guards");
    s.eventually("every lock is renewed", async || {
        let late = guards.iter().filter(|guard| guard.deadline() <= before);
        let late: Vec<_> = late.map(Guard::state).collect();
        let all = late.is_empty().then_some(());
        all.ok_or_else(|| format!("not renewed: {late:?}"))
    })
    .await;
    for guard in guards {
        let name = guard.name().clone();
        let busy = b.mutex(name.as_str()).try_lock().await.expect("a try");
        assert!(busy.is_none(), "two holders of {name}");
        let fence = guard.fence();
        drop(guard);
        let next = lock_again(&s, &b, name.as_str()).await;
        assert!(next.fence() > fence);
    }
}
