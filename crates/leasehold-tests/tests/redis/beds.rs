//! The beds of Redis.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold_testkit::servers::redlock::{self, Nodes};
use leasehold_testkit::servers::stalling::Stalling;
use leasehold_tests::Bed;

const LOCKER: &str = env!("CARGO_BIN_EXE_locker");

/// It stands still between the steps of a call, so that a step may not find what the one before it did.
fn server() -> &'static Stalling {
    static SERVER: OnceLock<Stalling> = OnceLock::new();
    SERVER.get_or_init(Stalling::start)
}

/// Keys of ours that would stay for ever. Kept on purpose: the trace of evictions, and which run a node has seen.
fn endless(cli: impl Fn(&[&str]) -> String) -> Vec<String> {
    let script = "local endless = {} for _, key in ipairs(redis.call('KEYS', 'lh:*')) do \
         if redis.call('TTL', key) == -1 then table.insert(endless, key) end end return endless";
    let keys = cli(&["--raw", "EVAL", script, "0"]);
    let keys = keys.lines().filter(|key| !key.is_empty());
    let kept = |key: &&str| key.ends_with("evictions") || key.ends_with("!run");
    let endless = keys.filter(|key| !kept(key));
    endless
        .map(|key| format!("without an end: {key}"))
        .collect()
}

fn bed(options: &'static str) -> Bed {
    let mut bed = Bed::new(LOCKER, &[server().port], move |ports| {
        format!("redis://127.0.0.1:{}?{options}", ports[0])
    });
    bed.endless = Box::new(|| endless(|args| server().cli(args)));
    bed
}

pub(crate) fn own() -> Bed {
    bed("prefix=lh:")
}

pub(crate) fn redisson() -> Bed {
    bed("layout=redisson")
}

pub(crate) fn redlock() -> Bed {
    static NODES: OnceLock<Nodes> = OnceLock::new();
    let nodes = NODES.get_or_init(|| Nodes::start(3));
    let ports: Vec<_> = nodes.nodes.iter().map(|node| node.port).collect();
    let mut bed = Bed::new(LOCKER, &ports, redlock::url);
    // A majority has a quarter of the lease to answer.
    bed.lease = Duration::from_millis(2_500);
    bed.endless = Box::new(|| {
        let nodes = nodes.nodes.iter();
        nodes
            .flat_map(|node| endless(|args| node.cli_args(args)))
            .collect()
    });
    bed
}
