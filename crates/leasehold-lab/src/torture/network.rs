//! The way of one worker to the servers.

use std::time::Duration;

use leasehold_testkit::proxy::{Fate, Proxy, Way};

use super::faults::FaultKind;

/// A proxy before each server.
#[derive(Debug)]
pub(super) struct Network {
    proxies: Vec<(u16, Proxy)>,
    /// How the way is when nothing is wrong with it.
    usual: Fate,
}

/// How far workers are from the servers, in milliseconds. A distant worker has something on the way when a fault comes.
const DISTANCES: [u64; 4] = [0, 20, 3, 8];

impl Network {
    /// Before the servers at these ports; `tell` where they tell each other's.
    pub(super) fn before(ports: &[u16], tell: bool, worker: u64) -> Self {
        let proxies = ports.iter().map(|port| (*port, Proxy::before(*port)));
        let proxies: Vec<_> = proxies.collect();
        if tell {
            let ports: Vec<_> = proxies
                .iter()
                .map(|(at, proxy)| (*at, proxy.port))
                .collect();
            proxies.iter().for_each(|(_, proxy)| proxy.tell(&ports));
        }
        let network = Self {
            proxies,
            usual: match DISTANCES[worker as usize % DISTANCES.len()] {
                0 => Fate::Pass,
                distance => Fate::Delay(Duration::from_millis(distance)),
            },
        };
        network.end();
        network
    }

    /// The URL with the ports of the proxies.
    pub(super) fn through(&self, url: &str) -> String {
        self.proxies
            .iter()
            .fold(url.to_owned(), |url, (port, proxy)| {
                url.replace(&format!(":{port}"), &format!(":{}", proxy.port))
            })
    }

    /// Disturbs the way to one server, or to all of them.
    pub(super) fn begin(&self, kind: FaultKind, draw: u64) {
        let one = (draw / 3) as usize % self.proxies.len();
        for (at, (_, proxy)) in self.proxies.iter().enumerate() {
            if draw.is_multiple_of(3) || at == one {
                disturb(proxy, kind, draw / 64);
            }
        }
    }

    pub(super) fn end(&self) {
        self.proxies
            .iter()
            .for_each(|(_, proxy)| proxy.set_both(self.usual));
    }
}

fn disturb(proxy: &Proxy, kind: FaultKind, draw: u64) {
    match kind {
        FaultKind::Delay => proxy.set_both(Fate::Delay(Duration::from_millis(20 + draw % 130))),
        FaultKind::CutToServer => proxy.set(Way::ToServer, Fate::Hold),
        FaultKind::CutToClient => proxy.set(Way::ToClient, Fate::Hold),
        // The request took effect, and its answer is lost.
        FaultKind::Reset => proxy.after(Way::ToClient, draw % 4, Fate::Reset),
        _ => proxy.set_both(Fate::Hold),
    }
}
