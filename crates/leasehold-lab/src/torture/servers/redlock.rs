//! Redlock: five nodes, of which a minority is hit.

use leasehold::engine::Clock;
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::servers::redlock::{Nodes, let_vote};

use super::{FaultKind, Servers, redis};

/// The longest lease, in seconds: for so long a node that came back stays out of votes.
const LONGEST: u64 = 2;

/// Five independent nodes; the first has a clock of its own.
#[derive(Debug)]
pub(super) struct Majority {
    nodes: Nodes,
    hit: Vec<usize>,
    /// Until then those that were killed last do not vote, and no others may be killed.
    silent_until: u64,
}

impl Majority {
    pub(super) fn start() -> Self {
        let mut nodes = Nodes::start(4);
        nodes.nodes.insert(0, Redis::with_clock());
        let_vote(&nodes.nodes[0]);
        Self {
            nodes,
            hit: Vec::new(),
            silent_until: 0,
        }
    }
}

impl Servers for Majority {
    fn url(&self) -> String {
        format!("{}?longest={LONGEST}", self.nodes.url())
    }

    fn ports(&self) -> Vec<u16> {
        self.nodes.nodes.iter().map(|node| node.port).collect()
    }

    fn begin(&mut self, kind: FaultKind, draw: u64) {
        let all_vote = Clock::boot().now() > self.silent_until;
        self.hit = match kind {
            FaultKind::ClockStep => vec![0],
            _ if !all_vote => std::mem::take(&mut self.hit),
            _ => {
                let first = draw as usize % 5;
                let second = (first + 1 + (draw / 8) as usize % 4) % 5;
                vec![first, second]
            }
        };
        for at in &self.hit {
            redis::begin(&mut self.nodes.nodes[*at], kind, draw);
        }
    }

    fn end(&mut self, kind: FaultKind) {
        for at in &self.hit {
            redis::end(&mut self.nodes.nodes[*at], kind);
        }
        if kind == FaultKind::ServerKill {
            self.silent_until = Clock::boot().now() + (LONGEST + 1) * 1_000_000;
        }
    }
}
