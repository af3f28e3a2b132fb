//! Redis: one server, a master below Sentinel, a Cluster.

use leasehold::engine::{Clock, Micros};
use leasehold_testkit::poll::until;
use leasehold_testkit::servers::redis::{Cluster, Redis, Sentinels};

use super::{FaultKind, Servers, step};

/// Kills a server or makes it stand still.
pub(super) fn begin(server: &mut Redis, kind: FaultKind, draw: u64) {
    match kind {
        FaultKind::ServerPause => server.pause(true),
        FaultKind::ClockStep => server.step(step(draw)),
        _ => server.kill(),
    }
}

pub(super) fn end(server: &mut Redis, kind: FaultKind) {
    match kind {
        FaultKind::ServerPause => server.pause(false),
        FaultKind::ClockStep => server.step(0),
        _ => server.restart(),
    }
}

/// One server.
#[derive(Debug)]
pub(super) struct One(Redis);

impl One {
    /// It comes back empty.
    pub(super) fn forgetful() -> Self {
        Self(Redis::start())
    }

    /// It comes back with all it had, and has a clock of its own.
    pub(super) fn durable() -> Self {
        Self(Redis::durable_with_clock())
    }
}

impl Servers for One {
    fn url(&self) -> String {
        self.0.url()
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port]
    }

    fn begin(&mut self, kind: FaultKind, draw: u64) {
        begin(&mut self.0, kind, draw);
    }

    fn end(&mut self, kind: FaultKind) {
        end(&mut self.0, kind);
    }
}

/// A master with two replicas and three sentinels, all without a disk.
#[derive(Debug)]
pub(super) struct Watched {
    servers: Sentinels,
    dead: usize,
    /// The only master, and since when.
    master: (u16, Micros),
}

impl Watched {
    pub(super) fn start() -> Self {
        let servers = Sentinels::start();
        let master = (servers.master(), Clock::boot().now());
        Self {
            servers,
            dead: 0,
            master,
        }
    }

    fn others(&self) -> impl Iterator<Item = &Redis> {
        let nodes = self.servers.nodes.iter().enumerate();
        nodes
            .filter(|(at, _)| *at != self.dead)
            .map(|(_, node)| node)
    }
}

impl Servers for Watched {
    fn url(&self) -> String {
        self.servers.url()
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.ports()
    }

    fn tell(&self) -> bool {
        true
    }

    fn begin(&mut self, _: FaultKind, _: u64) {
        let master = self.servers.master();
        let place = self
            .servers
            .nodes
            .iter()
            .position(|node| node.port == master);
        self.dead = place.expect("the master is one of ours");
        // The next master does not know of writes that the replicas do not hear from here on.
        self.others().for_each(|replica| replica.pause(true));
        let _ = self.servers.nodes[self.dead].cli("CLIENT KILL TYPE replica");
    }

    fn end(&mut self, _: FaultKind) {
        self.servers.nodes[self.dead].kill();
        self.others().for_each(|replica| replica.pause(false));
        let old = self.servers.nodes[self.dead].port;
        until("another master", || match self.servers.master() {
            port if port != old && port != 0 => Ok(()),
            port => Err(format!("{port}; {}", self.servers.said())),
        });
        self.servers.nodes[self.dead].restart();
        self.settle();
    }

    fn moved(&mut self) -> Option<(FaultKind, Micros)> {
        let (was, since) = self.master;
        if self.servers.agreed_master() == Some(was) {
            return None;
        }
        self.settle();
        Some((FaultKind::Failover, since))
    }
}

impl Watched {
    fn settle(&mut self) {
        let master = until("one master, whom all others follow", || {
            let master = self.servers.agreed_master().ok_or("no agreement")?;
            let mut others = self.servers.nodes.iter().filter(|node| node.port != master);
            others.try_for_each(|node| follows(node, master))?;
            Ok(master)
        });
        self.master = (master, Clock::boot().now());
    }
}

/// Whether a node follows the master. The sentinels, too, tell it to, many seconds later.
fn follows(node: &Redis, master: u16) -> Result<(), String> {
    let said = node.cli("INFO replication");
    let of = format!("master_port:{master}\r\n");
    if !said.contains("role:slave") || !said.contains(&of) {
        let _ = node.cli(&format!("REPLICAOF 127.0.0.1 {master}"));
    }
    let follows = said.contains(&of) && said.contains("master_link_status:up");
    follows.then_some(()).ok_or(said)
}

/// A Cluster of masters: no replica takes over, and a master that comes back has forgotten.
#[derive(Debug)]
pub(super) struct Sharded {
    servers: Cluster,
    hit: usize,
}

impl Sharded {
    pub(super) fn start() -> Self {
        Self {
            servers: Cluster::start(),
            hit: 0,
        }
    }
}

impl Servers for Sharded {
    fn url(&self) -> String {
        self.servers.url()
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.nodes.iter().map(|node| node.port).collect()
    }

    fn tell(&self) -> bool {
        true
    }

    fn begin(&mut self, kind: FaultKind, draw: u64) {
        self.hit = draw as usize % self.servers.nodes.len();
        begin(&mut self.servers.nodes[self.hit], kind, draw);
    }

    fn end(&mut self, kind: FaultKind) {
        end(&mut self.servers.nodes[self.hit], kind);
        until("the cluster is whole", || {
            let seen: Vec<_> = self
                .servers
                .nodes
                .iter()
                .map(|node| node.cli("CLUSTER INFO"))
                .collect();
            let whole = |text: &String| {
                text.contains("cluster_state:ok") && text.contains("cluster_slots_ok:16384")
            };
            seen.iter()
                .all(whole)
                .then_some(())
                .ok_or_else(|| seen.join("\n"))
        });
    }
}
