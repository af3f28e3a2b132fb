//! ZooKeeper: alone, and three that are one.

use leasehold_testkit::servers::zookeeper::{Ensemble, ZooKeeper};

use super::{FaultKind, Servers, step};

fn begin(server: &ZooKeeper, kind: FaultKind, draw: u64) {
    match kind {
        FaultKind::ServerPause => server.pause(),
        FaultKind::ClockStep => server.step(step(draw)),
        _ => server.kill(),
    }
}

fn end(server: &ZooKeeper, kind: FaultKind) {
    match kind {
        FaultKind::ServerPause => server.resume(),
        FaultKind::ClockStep => server.step(0),
        _ => server.restart(),
    }
    server.ready();
}

/// One server, with a clock of its own.
#[derive(Debug)]
pub(super) struct Alone(ZooKeeper);

impl Alone {
    pub(super) fn start() -> Self {
        Self(ZooKeeper::with_clock())
    }
}

impl Servers for Alone {
    fn url(&self) -> String {
        format!("{}/locks", self.0.url())
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn begin(&mut self, kind: FaultKind, draw: u64) {
        begin(&self.0, kind, draw);
    }

    fn end(&mut self, kind: FaultKind) {
        end(&self.0, kind);
    }
}

/// An ensemble.
#[derive(Debug)]
pub(super) struct Three {
    servers: Ensemble,
    hit: usize,
}

impl Three {
    pub(super) fn start() -> Self {
        Self {
            servers: Ensemble::start(),
            hit: 0,
        }
    }
}

impl Servers for Three {
    fn url(&self) -> String {
        format!("{}/locks", self.servers.url())
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.members.iter().map(ZooKeeper::port).collect()
    }

    fn begin(&mut self, kind: FaultKind, draw: u64) {
        let leads = self.servers.leader().port();
        let leader = self
            .servers
            .members
            .iter()
            .position(|member| member.port() == leads);
        self.hit = match kind {
            FaultKind::LeaderKill => leader.unwrap_or(0),
            _ => draw as usize % self.servers.members.len(),
        };
        begin(&self.servers.members[self.hit], kind, draw);
    }

    fn end(&mut self, kind: FaultKind) {
        end(&self.servers.members[self.hit], kind);
    }
}
