//! Around the end of a dead holder's lease: own layout, Redisson's, and Redlock.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::{Redis as Engine, Redisson, Redlock, Url};
use leasehold_testkit::servers::redlock::{self, Nodes};
use leasehold_testkit::servers::stalling::Stalling;
use leasehold_tests::Bed;
use leasehold_tests::edge::{Ending, passes_on};

const LOCKER: &str = env!("CARGO_BIN_EXE_locker");

/// It stands still between the steps of a call, so that a step may find what the one before it did not.
fn server() -> &'static Stalling {
    static SERVER: OnceLock<Stalling> = OnceLock::new();
    SERVER.get_or_init(Stalling::start)
}

/// Keys of ours that would stay for ever. What is kept on purpose: the trace of evictions, and which run a node has seen.
fn endless(cli: impl Fn(&[&str]) -> String) -> Vec<String> {
    let script = "local endless = {} for _, key in ipairs(redis.call('KEYS', 'lh:*')) do \
         if redis.call('TTL', key) == -1 then table.insert(endless, key) end end return endless";
    let keys = cli(&["--raw", "EVAL", script, "0"]);
    let keys = keys.lines().filter(|key| !key.is_empty());
    let kept = |key: &&str| key.ends_with("evictions") || key.ends_with("!run");
    keys.filter(|key| !kept(key)).map(str::to_owned).collect()
}

fn bed(options: &'static str) -> Bed {
    let mut bed = Bed::new(LOCKER, &[server().port], move |ports| {
        format!("redis://127.0.0.1:{}?{options}", ports[0])
    });
    bed.endless = Box::new(|| endless(|args| server().cli(args)));
    bed
}

async fn own(ending: Ending) {
    let bed = bed("");
    let url = Url::parse(&bed.direct()).expect("a URL");
    passes_on(&bed, Engine::new(&url).expect("an engine"), ending).await;
}

async fn redisson(ending: Ending) {
    let bed = bed("layout=redisson");
    let url = Url::parse(&bed.direct()).expect("a URL");
    passes_on(&bed, Redisson::new(&url).expect("an engine"), ending).await;
}

async fn redlock(ending: Ending) {
    static NODES: OnceLock<Nodes> = OnceLock::new();
    let nodes = NODES.get_or_init(|| Nodes::start(3));
    let ports: Vec<_> = nodes.nodes.iter().map(|node| node.port).collect();
    let mut bed = Bed::new(LOCKER, &ports, redlock::url);
    // A node has an eighth of the lease to answer.
    bed.lease = Duration::from_millis(2_500);
    bed.endless = Box::new(|| {
        nodes
            .nodes
            .iter()
            .flat_map(|node| endless(|args| node.cli_args(args)))
            .collect()
    });
    let url = Url::parse(&bed.direct()).expect("a URL");
    passes_on(&bed, Redlock::new(&url).expect("an engine"), ending).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_stopped_holder() {
    own(Ending::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_holder() {
    own(Ending::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_stopped_holder_in_redissons_layout() {
    redisson(Ending::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_holder_in_redissons_layout() {
    redisson(Ending::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_stopped_holder_of_a_majority() {
    redlock(Ending::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_holder_of_a_majority() {
    redlock(Ending::Killed).await;
}
