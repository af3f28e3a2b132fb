//! Consul: alone, and three that are one.

use leasehold_testkit::servers::consul::{Consul, Three as Members};

use super::{FaultKind, Servers};

fn begin(server: &Consul, kind: FaultKind) {
    match kind {
        FaultKind::ServerPause => server.pause(),
        _ => server.kill(),
    }
}

fn end(server: &Consul, kind: FaultKind) {
    match kind {
        FaultKind::ServerPause => server.resume(),
        _ => server.restart(),
    }
    server.ready();
}

/// One server, and the options of its URL.
#[derive(Debug)]
pub(super) struct Alone(Consul, &'static str);

impl Alone {
    pub(super) fn start(options: &'static str) -> Self {
        Self(Consul::start(), options)
    }
}

impl Servers for Alone {
    fn url(&self) -> String {
        format!("{}/locks{}", self.0.url(), self.1)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn begin(&mut self, kind: FaultKind, _draw: u64) {
        begin(&self.0, kind);
    }

    fn end(&mut self, kind: FaultKind) {
        end(&self.0, kind);
    }
}

/// Three servers.
#[derive(Debug)]
pub(super) struct Three {
    servers: Members,
    hit: usize,
}

impl Three {
    pub(super) fn start() -> Self {
        Self {
            servers: Members::start(),
            hit: 0,
        }
    }
}

impl Servers for Three {
    fn url(&self) -> String {
        format!("{}/locks", self.servers.url())
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.members.iter().map(Consul::port).collect()
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
