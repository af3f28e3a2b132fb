//! etcd: alone, and three members of a cluster.

use leasehold_testkit::servers::etcd::{Cluster, Etcd};

use super::{FaultKind, Servers};

fn begin(server: &Etcd, kind: FaultKind) {
    match kind {
        FaultKind::ServerPause => server.pause(),
        _ => server.kill(),
    }
}

fn end(server: &Etcd, kind: FaultKind) {
    match kind {
        FaultKind::ServerPause => server.resume(),
        _ => server.restart(),
    }
    server.ready();
}

/// One server.
#[derive(Debug)]
pub(super) struct Alone(Etcd);

impl Alone {
    pub(super) fn start() -> Self {
        Self(Etcd::start())
    }
}

impl Servers for Alone {
    fn url(&self) -> String {
        format!("{}?prefix=locks/", self.0.url())
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn begin(&mut self, kind: FaultKind, _: u64) {
        begin(&self.0, kind);
    }

    fn end(&mut self, kind: FaultKind) {
        end(&self.0, kind);
    }
}

/// A cluster.
#[derive(Debug)]
pub(super) struct Three {
    servers: Cluster,
    hit: usize,
}

impl Three {
    pub(super) fn start() -> Self {
        Self {
            servers: Cluster::start(),
            hit: 0,
        }
    }
}

impl Servers for Three {
    fn url(&self) -> String {
        format!("{}?prefix=locks/", self.servers.url())
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.members.iter().map(Etcd::port).collect()
    }

    fn begin(&mut self, kind: FaultKind, draw: u64) {
        self.hit = match kind {
            FaultKind::LeaderKill => self.servers.leads(),
            _ => draw as usize % self.servers.members.len(),
        };
        begin(&self.servers.members[self.hit], kind);
    }

    fn end(&mut self, kind: FaultKind) {
        end(&self.servers.members[self.hit], kind);
    }
}
