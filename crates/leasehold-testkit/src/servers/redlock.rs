//! Redlock: several `redis-server`s that know nothing of each other.

use super::redis::Redis;

/// Independent nodes.
#[derive(Debug)]
pub struct Nodes {
    /// The nodes, in the order of their ports as started.
    pub nodes: Vec<Redis>,
}

/// Which run of the server a node has seen, and since when.
const MARKER: &str = "lh:rl:!run";

impl Nodes {
    /// Starts so many nodes that keep nothing on disk. They are new and have no locks: they may vote.
    pub fn start(count: usize) -> Self {
        let started = Self {
            nodes: (0..count).map(|_| Redis::start()).collect(),
        };
        started.nodes.iter().for_each(let_vote);
        started
    }

    /// Their URL.
    pub fn url(&self) -> String {
        let ports: Vec<_> = self.nodes.iter().map(|node| node.port).collect();
        url(&ports)
    }

    /// The nodes with keys of a name that a claim holds or waits for.
    pub fn used(&self, name: &str) -> Vec<usize> {
        let used = |node: &Redis| {
            let key = node.cli(&format!("--raw KEYS lh:rl:{{??}}:{name}"));
            node.cli_args(&["--raw", "HGET", key.trim(), "i"])
                .trim()
                .len()
                == 32
        };
        (0..self.nodes.len())
            .filter(|at| used(&self.nodes[*at]))
            .collect()
    }
}

/// The URL of nodes at these ports.
pub fn url(ports: &[u16]) -> String {
    let hosts: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    format!("redlock://{}", hosts.join(","))
}

/// Says that a node has forgotten nothing, as the operator of a new deployment may.
///
/// # Panics
/// If it does not answer.
pub fn let_vote(node: &Redis) {
    let info = node.cli("INFO server");
    let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    let run = run.expect("a run id").trim();
    assert_eq!(
        node.cli_args(&["SET", MARKER, &format!("{run} 0")]).trim(),
        "OK"
    );
}
