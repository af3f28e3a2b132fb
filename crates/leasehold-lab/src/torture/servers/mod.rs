//! The servers of a run, and what is done to them.

mod consul;
mod etcd;
mod redis;
mod redlock;
mod sql;
mod zookeeper;

use std::time::Duration;

use leasehold::engine::Micros;

use super::faults::FaultKind;

/// Servers of ours. An error of theirs is a panic, as it is in the test kit.
pub(super) trait Servers: std::fmt::Debug + Send {
    /// The URL without a proxy.
    fn url(&self) -> String;

    /// The ports that workers reach through proxies of their own.
    fn ports(&self) -> Vec<u16>;

    /// Whether the servers tell each other's addresses in their answers.
    fn tell(&self) -> bool {
        false
    }

    /// Does it to one server, or to some; which is drawn.
    fn begin(&mut self, kind: FaultKind, draw: u64);

    /// Undoes it, and waits until all are as before.
    fn end(&mut self, kind: FaultKind);

    /// Since when the servers may have been changing places without being asked to, if they have: a slow machine is
    /// enough for that.
    fn moved(&mut self) -> Option<(FaultKind, Micros)> {
        None
    }
}

/// How far a clock steps at most.
pub(super) const LONGEST_STEP: Duration = Duration::from_secs(2);

/// How far it steps: one or two seconds ahead or behind.
fn step(draw: u64) -> i64 {
    [-2, -1, 1, 2][draw as usize % 4]
}

/// Starts what an engine's word means.
pub(super) fn start(word: &str) -> Box<dyn Servers> {
    match word {
        "redis" => Box::new(redis::One::forgetful()),
        "redis-durable" => Box::new(redis::One::durable()),
        "redis-sentinel" => Box::new(redis::Watched::start()),
        "redis-cluster" => Box::new(redis::Sharded::start()),
        "redlock" => Box::new(redlock::Majority::start()),
        "postgres" => Box::new(sql::PostgreSql::start()),
        "mariadb" => Box::new(sql::Maria::start()),
        "consul" => Box::new(consul::Alone::start("")),
        "consul-shared" => Box::new(consul::Alone::start("?layout=consul")),
        "consul-three" => Box::new(consul::Three::start()),
        "zookeeper" => Box::new(zookeeper::Alone::start()),
        "zookeeper-ensemble" => Box::new(zookeeper::Three::start()),
        "etcd" => Box::new(etcd::Alone::start()),
        "etcd-cluster" => Box::new(etcd::Three::start()),
        other => unreachable!("{other} has no servers"),
    }
}
