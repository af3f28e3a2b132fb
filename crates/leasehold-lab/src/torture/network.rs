//! The way of one worker to the servers.

use std::time::Duration;

use leasehold_testkit::proxy::{Fate, Proxy, Way};

use super::faults::FaultKind;

/// A proxy before each server.
#[derive(Debug)]
pub(super) struct Network(Vec<(u16, Proxy)>);

impl Network {
    pub(super) fn before(ports: &[u16]) -> Self {
        Self(
            ports
                .iter()
                .map(|port| (*port, Proxy::before(*port)))
                .collect(),
        )
    }

    /// The URL with the ports of the proxies.
    pub(super) fn through(&self, url: &str) -> String {
        self.0.iter().fold(url.to_owned(), |url, (port, proxy)| {
            url.replace(&format!(":{port}"), &format!(":{}", proxy.port))
        })
    }

    /// Disturbs the way to one server, or to all of them.
    pub(super) fn begin(&self, kind: FaultKind, draw: u64) {
        let one = (draw / 3) as usize % self.0.len();
        for (at, (_, proxy)) in self.0.iter().enumerate() {
            if draw.is_multiple_of(3) || at == one {
                disturb(proxy, kind, draw / 64);
            }
        }
    }

    pub(super) fn end(&self) {
        self.0
            .iter()
            .for_each(|(_, proxy)| proxy.set_both(Fate::Pass));
    }
}

fn disturb(proxy: &Proxy, kind: FaultKind, draw: u64) {
    match kind {
        FaultKind::Delay => proxy.set_both(Fate::Delay(Duration::from_millis(draw % 80))),
        FaultKind::CutToServer => proxy.set(Way::ToServer, Fate::Hold),
        FaultKind::CutToClient => proxy.set(Way::ToClient, Fate::Hold),
        // The request took effect, and nobody hears of it.
        FaultKind::Reset => proxy.after(Way::ToClient, draw % 4, Fate::Reset),
        _ => proxy.set_both(Fate::Hold),
    }
}
