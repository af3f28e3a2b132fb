//! The deployment of a torture: servers of ours behind proxies, or those of a given URL.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::faults::FaultKind::{self, *};
use super::network::Network;
use super::servers::{Servers, start};
use crate::Outcome;

/// An engine that is set up by its word.
struct Engine {
    word: &'static str,
    faults: &'static [FaultKind],
    /// Faults under which it keeps exclusion as it is set up here, though the engine cannot know that.
    kept: &'static [FaultKind],
    /// The lease in milliseconds, unless told otherwise.
    lease: u64,
}

const WORKERS: &[FaultKind] = &[Kill, Pause, Evict];

/// A server that is reached through a proxy for each worker, and more.
macro_rules! served {
    ($($more:ident)*) => {
        &[Kill, Pause, Evict, Delay, Cut, CutToServer, CutToClient, Reset, $($more),*]
    };
}

/// A server that is back with all it had has lost no lock.
const ENGINES: [Engine; 16] = [
    engine("file", WORKERS, 400),
    engine("sqlite", WORKERS, 600),
    engine("redis", served!(ServerKill ServerPause), 600),
    engine(
        "redis-durable",
        served!(ServerKill ServerPause ClockStep),
        600,
    )
    .keeping(&[ServerKill]),
    engine("redis-sentinel", served!(Failover), 600),
    engine("redis-cluster", served!(ServerKill ServerPause), 600),
    engine("redlock", served!(ServerKill ServerPause ClockStep), 800),
    engine("postgres", served!(ServerKill ServerPause ClockStep), 800),
    engine("mariadb", served!(ServerKill ServerPause ClockStep), 800),
    engine("zookeeper", served!(ServerKill ServerPause ClockStep), 800),
    engine("zookeeper-ensemble", served!(LeaderKill ServerPause), 800),
    engine("etcd", served!(ServerKill ServerPause), 1500),
    engine("etcd-cluster", served!(LeaderKill ServerPause), 1500),
    engine("consul", served!(ServerKill ServerPause), 800),
    engine("consul-shared", served!(ServerKill ServerPause), 800),
    engine("consul-three", served!(LeaderKill ServerPause), 800),
];

const fn engine(word: &'static str, faults: &'static [FaultKind], lease: u64) -> Engine {
    Engine {
        word,
        faults,
        kept: &[],
        lease,
    }
}

impl Engine {
    const fn keeping(mut self, kept: &'static [FaultKind]) -> Self {
        self.kept = kept;
        self
    }
}

fn known(url: &str) -> Option<&'static Engine> {
    let word = url.strip_suffix(':').unwrap_or(url);
    ENGINES.iter().find(|engine| engine.word == word)
}

/// The words of the engines that are set up for a run.
pub fn engines() -> Vec<&'static str> {
    ENGINES.iter().map(|engine| engine.word).collect()
}

/// The faults that can be made there: all of them for an engine's word, those of workers for a URL.
pub fn faults_of(url: &str) -> &'static [FaultKind] {
    known(url).map_or(WORKERS, |engine| engine.faults)
}

/// The faults of the servers that a held lock outlives here, besides those the engine names.
pub(super) fn kept_by(url: &str) -> &'static [FaultKind] {
    known(url).map_or(&[], |engine| engine.kept)
}

/// The lease that suits it.
pub fn lease_of(url: &str) -> Duration {
    Duration::from_millis(known(url).map_or(1_000, |engine| engine.lease))
}

/// Something to lock in, and what can be done to it.
#[derive(Debug)]
pub(super) struct Deployment {
    /// Straight to the servers.
    pub(super) url: String,
    servers: Option<Shared>,
    networks: Vec<Arc<Network>>,
}

/// Servers, to be hit by a thread of its own: a server takes a while to start.
pub(super) type Shared = Arc<Mutex<Box<dyn Servers>>>;

impl Deployment {
    /// Sets up an engine by its word, or takes a URL as it is.
    pub(super) fn new(url: &str, workers: u64, into: &Path) -> Outcome<Self> {
        if url.starts_with("memory:") {
            return Err("memory: is one process; `simulate` covers it".into());
        }
        let servers = match (known(url).map(|engine| engine.word), into.display()) {
            (None, _) if url.contains(':') => return Ok(Self::serverless(url.to_owned())),
            (None, _) => {
                let words = engines().join(", ");
                return Err(format!("{url} is no URL and no engine; known: {words}").into());
            }
            (Some("file"), into) => return Ok(Self::serverless(format!("file:{into}/locks"))),
            (Some("sqlite"), into) => {
                return Ok(Self::serverless(format!("sqlite:{into}/locks.db")));
            }
            (Some(word), _) => start(word),
        };
        let (ports, tell) = (servers.ports(), servers.tell());
        let network = |worker| Arc::new(Network::before(&ports, tell, worker));
        let networks = (0..workers).map(network).collect();
        Ok(Self {
            url: servers.url(),
            servers: Some(Arc::new(Mutex::new(servers))),
            networks,
        })
    }

    fn serverless(url: String) -> Self {
        Self {
            url,
            servers: None,
            networks: Vec::new(),
        }
    }

    /// The URL of a worker; stays the same over restarts.
    pub(super) fn url_of(&self, worker: u64) -> String {
        match self.networks.get(worker as usize) {
            Some(network) => network.through(&self.url),
            None => self.url.clone(),
        }
    }

    pub(super) fn servers(&self) -> Option<Shared> {
        self.servers.clone()
    }

    pub(super) fn network(&self, worker: u64) -> Option<Arc<Network>> {
        self.networks.get(worker as usize).cloned()
    }
}

/// Does something to the servers that takes its time.
pub(super) async fn with_servers<T: Send + 'static>(
    servers: &Shared,
    act: impl FnOnce(&mut dyn Servers) -> T + Send + 'static,
) -> Outcome<T> {
    let servers = servers.clone();
    let acted = tokio::task::spawn_blocking(move || {
        let mut servers = servers.lock().unwrap_or_else(PoisonError::into_inner);
        act(servers.as_mut())
    });
    Ok(acted.await?)
}
