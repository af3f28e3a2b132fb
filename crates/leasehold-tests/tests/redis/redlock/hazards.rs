//! Hazards of Redlock, with five real nodes: a minority of them dead, hung, black-holed or started again with nothing,
//! a majority gone.

use std::time::Duration;

use leasehold::engine::{Clock, Query};
use leasehold::{Client, ConnectOptions, ErrorKind, FenceGate, Guard, GuardState, Name, Released};
use leasehold_testkit::poll::{eventually, until};
use leasehold_testkit::proxy::{Fate, Proxy};
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::servers::redlock::{Nodes, let_vote, url};

const LEASE: Duration = Duration::from_secs(2);

/// Five nodes, each behind a proxy.
struct World {
    nodes: Nodes,
    proxies: Vec<Proxy>,
}

impl World {
    fn start() -> Self {
        let nodes = Nodes::start(5);
        let proxies = nodes
            .nodes
            .iter()
            .map(|node| Proxy::before(node.port))
            .collect();
        Self { nodes, proxies }
    }

    /// The first node has a clock of its own.
    fn with_clock() -> Self {
        let mut nodes = Nodes::start(4);
        nodes.nodes.insert(0, Redis::with_clock());
        let_vote(&nodes.nodes[0]);
        let proxies = nodes
            .nodes
            .iter()
            .map(|node| Proxy::before(node.port))
            .collect();
        Self { nodes, proxies }
    }

    fn cut(&self, nodes: &[usize], fate: Fate) {
        for at in nodes {
            self.proxies[*at].set_both(fate);
        }
    }

    /// A client that sees the nodes through the proxies.
    async fn client(&self) -> Client {
        let ports: Vec<_> = self.proxies.iter().map(|proxy| proxy.port).collect();
        let url = format!("{}?longest=3", url(&ports));
        ConnectOptions::new()
            .lease(LEASE)
            .connect(&url)
            .await
            .expect("a majority is there")
    }

    /// Which nodes have the name.
    fn has(&self, name: &str, wanted: &[usize]) {
        until("the nodes that have it", || match self.nodes.used(name) {
            used if used == wanted => Ok(()),
            used => Err(format!("{wanted:?} wanted, {used:?}")),
        });
    }
}

/// Stays valid for longer than a lease.
async fn outlives(guard: &Guard) {
    let clock = Clock::boot();
    let end = clock.now() + (LEASE * 3 / 2).as_micros() as u64;
    eventually("a lease is over", async || {
        guard.check().expect("lost although a majority is there");
        match clock.now() {
            now if now < end => Err(format!("{} µs are left", end - now)),
            _ => Ok(()),
        }
    })
    .await;
    assert_eq!(guard.state(), GuardState::Valid);
}

/// A client holds, two nodes fail, its lock is renewed and released, and others can have it.
async fn survives(world: &mut World, fail: impl FnOnce(&mut World)) {
    let (a, b) = (world.client().await, world.client().await);
    let held = a.mutex("x").lock().await.expect("free");
    world.has("x", &[0, 1, 2, 3, 4]);
    fail(world);
    outlives(&held).await;
    assert!(
        b.mutex("x").try_lock().await.expect("a try").is_none(),
        "two holders"
    );
    let fence = held.fence();
    assert_eq!(held.release().await.expect("released"), Released::Released);
    let next = tokio::time::timeout(LEASE, b.mutex("x").lock())
        .await
        .expect("in time")
        .expect("granted");
    assert!(next.fence() > fence);
    outlives(&next).await;
    let query = Query::name(Name::new("x").expect("a name"));
    let seen = b.inspect(&query).await.expect("a majority answers");
    assert_eq!(seen[0].holders.len(), 1, "{seen:?}");
    assert_eq!(next.release().await.expect("released"), Released::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_die() {
    survives(&mut World::start(), |world| {
        (1..3).for_each(|at| world.nodes.nodes[at].kill())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_hang() {
    let mut world = World::start();
    survives(&mut world, |world| {
        (0..2).for_each(|at| world.nodes.nodes[at].pause(true))
    })
    .await;
    world.nodes.nodes[..2]
        .iter()
        .for_each(|node| node.pause(false));
    // Nodes that hung do in order what they were told meanwhile: nothing stays.
    world.has("x", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_are_black_holed() {
    survives(&mut World::start(), |world| {
        world.proxies[3..]
            .iter()
            .for_each(|proxy| proxy.set_both(Fate::Hold))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_are_slow() {
    let slow = Fate::Delay(LEASE / 4);
    survives(&mut World::start(), |world| {
        world.proxies[3..]
            .iter()
            .for_each(|proxy| proxy.set_both(slow))
    })
    .await;
}

/// A node that starts again with nothing does not help a claim to a second majority, and takes part again later.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_starts_again_with_nothing() {
    let mut world = World::start();
    let (a, b) = (world.client().await, world.client().await);
    // A has three nodes: the two others come back when it holds.
    (3..5).for_each(|at| world.nodes.nodes[at].kill());
    let held = a.mutex("x").keep_alive(false).lock().await.expect("free");
    world.has("x", &[0, 1, 2]);
    for at in 3..5 {
        world.nodes.nodes[at].restart();
        let_vote(&world.nodes.nodes[at]);
    }
    world.nodes.nodes[2].restart();
    let clock = Clock::boot();
    let began = clock.now();
    let waited = until_held(&b, "x").await;
    assert_eq!(
        held.state(),
        GuardState::Lost,
        "two holders after {} µs",
        clock.now() - began
    );
    assert!(waited.fence() > held.fence());
    // Once it votes, the holder has it too.
    world.has("x", &[0, 1, 2, 3, 4]);
    assert_eq!(
        waited.release().await.expect("released"),
        Released::Released
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_there_is_an_error_soon_and_nothing_stays() {
    let mut world = World::start();
    let (a, b) = (world.client().await, world.client().await);
    (0..3).for_each(|at| world.nodes.nodes[at].kill());
    let clock = Clock::boot();
    let before = clock.now();
    let error = a.mutex("x").lock().await.expect_err("two of five");
    let took = Duration::from_micros(clock.now() - before);
    println!("no majority: {error} after {took:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(took < LEASE / 2, "took {took:?}");
    world.has("x", &[]);
    // The same when the three hang: bounded by the patience with a node.
    (0..3).for_each(|at| {
        world.nodes.nodes[at].restart();
        let_vote(&world.nodes.nodes[at]);
    });
    let held = until_held(&b, "z").await;
    (0..3).for_each(|at| world.nodes.nodes[at].pause(true));
    let before = clock.now();
    let error = a.mutex("y").lock().await.expect_err("two of five");
    let took = Duration::from_micros(clock.now() - before);
    println!("a majority hangs: {error} after {took:?}");
    assert!(took < LEASE / 2, "took {took:?}");
    let lost = tokio::time::timeout(LEASE * 2, held.lost())
        .await
        .expect("told in time");
    assert!(lost.is_lost());
    (0..3).for_each(|at| world.nodes.nodes[at].pause(false));
    world.has("y", &[]);
}

/// Votes for a try without a majority are free long before its lease is over: the holder, or the next one, needs them.
#[tokio::test(flavor = "multi_thread")]
async fn votes_without_a_majority_are_given_back() {
    let mut nodes = Nodes::start(5);
    let url = format!("{}?longest=30", nodes.url());
    let client = async || {
        let options = ConnectOptions::new().lease(LEASE * 10);
        options.connect(&url).await.expect("a majority is there")
    };
    (3..5).for_each(|at| nodes.nodes[at].kill());
    let holder = client().await;
    let held = holder.mutex("x").keep_alive(false).lock().await;
    let held = held.expect("free");
    for at in 3..5 {
        nodes.nodes[at].restart();
        let_vote(&nodes.nodes[at]);
    }
    let (other, clock) = (client().await, Clock::boot());
    let before = clock.now();
    let tried = other.mutex("x").try_lock().await.expect("a try");
    assert!(tried.is_none(), "two of five");
    until("three nodes have it", || match nodes.used("x") {
        used if used == [0, 1, 2] => Ok(()),
        used => Err(format!("{used:?}")),
    });
    let took = Duration::from_micros(clock.now() - before);
    assert!(took < LEASE * 5, "given back after {took:?}");
    assert_eq!(held.release().await.expect("released"), Released::Released);
}

/// The connections come back after a while.
async fn until_held(client: &Client, name: &str) -> Guard {
    eventually("held", async || {
        let held = client.mutex(name).lock().await;
        held.map_err(|error| error.to_string())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn fences_grow_across_different_majorities() {
    let world = World::start();
    let (a, b) = (world.client().await, world.client().await);
    let (mut last, mut rounds) = (0, 0);
    for (round, cut) in [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4], [0, 2]]
        .into_iter()
        .cycle()
        .take(18)
        .enumerate()
    {
        cut.iter()
            .for_each(|at: &usize| world.proxies[*at].set_both(Fate::Hold));
        let client = if round % 2 == 0 { &a } else { &b };
        if let Ok(guard) = client.mutex("x").lock().await {
            assert!(
                guard.fence().get() > last,
                "{} after {last} in round {round}",
                guard.fence()
            );
            last = guard.fence().get();
            rounds += 1;
            assert_eq!(guard.release().await.expect("released"), Released::Released);
        }
        cut.iter()
            .for_each(|at| world.proxies[*at].set_both(Fate::Pass));
    }
    assert!(rounds > 9, "only {rounds} rounds came to a lock");
}

/// New nodes without the operator's word do not vote until the longest lease is over, and say so.
#[tokio::test(flavor = "multi_thread")]
async fn new_nodes_say_when_they_vote() {
    let mut world = World::start();
    for node in &mut world.nodes.nodes {
        node.restart();
    }
    let client = world.client().await;
    let error = client.mutex("x").lock().await.expect_err("they are new");
    assert!(
        error.to_string().contains("started a short time ago"),
        "{error}"
    );
    let held = until_held(&client, "z").await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
}

/// The largest fence of a majority is known to the next one, also if the node that gave it is not in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_fast_clock_does_not_bring_fences_back() {
    let world = World::with_clock();
    world.nodes.nodes[0].step(3600);
    let (a, b) = (world.client().await, world.client().await);
    world.cut(&[3, 4], Fate::Hold);
    let first = until_held(&a, "x").await;
    let fence = first.fence();
    let ahead = Duration::from_micros(fence.get().saturating_sub(Clock::boot().wall()));
    assert!(
        ahead > Duration::from_secs(3000),
        "the fast node was not asked"
    );
    assert_eq!(first.release().await.expect("released"), Released::Released);
    world.cut(&[3, 4], Fate::Pass);
    world.cut(&[0, 1], Fate::Hold);
    let next = until_held(&b, "x").await;
    assert!(next.fence() > fence, "{} after {fence}", next.fence());
}

/// The fenced case of the guarantees: a clock that jumps lets a second holder in, and its fence shuts out the first.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_is_fenced() {
    let world = World::with_clock();
    let (a, b) = (world.client().await, world.client().await);
    world.cut(&[3, 4], Fate::Hold);
    let first = a.mutex("x").keep_alive(false).lock().await.expect("free");
    world.has("x", &[0, 1, 2]);
    world.nodes.nodes[0].step(60);
    world.cut(&[3, 4], Fate::Pass);
    let second = until_held(&b, "x").await;
    println!("both hold: {:?} and {:?}", first.state(), second.state());
    let gate = FenceGate::new();
    gate.admit(first.fence()).expect("the only one so far");
    gate.admit(second.fence()).expect("the later one");
    let _ = gate
        .admit(first.fence())
        .expect_err("the earlier one is shut out");
}
