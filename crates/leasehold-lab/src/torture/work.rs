//! A worker process: a few tasks that lock until they are told to end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::engine::Identity;
use leasehold::{Client, ConnectOptions, ErrorKind, Owner, TurnBound};
use tokio::task::JoinSet;

use super::gate::Visitor;
use super::hand::Hand;
use super::locks::{NAMES, TURNS};
use crate::Outcome;
use crate::history::Log;
use crate::random::Random;

/// The command line of a worker process.
#[derive(Debug, Clone)]
pub struct Work {
    /// Where to lock.
    pub url: String,
    /// Its name in the history.
    pub who: String,
    /// Its history.
    pub log: PathBuf,
    /// The resource.
    pub gate: PathBuf,
    /// Its random numbers.
    pub seed: u64,
    /// The lease of every lock.
    pub lease: Duration,
    /// The longest a holder rests between two steps.
    pub rest: Duration,
    /// How many tasks it runs.
    pub tasks: u64,
}

/// Works until stdin ends.
///
/// # Errors
/// If it cannot connect, or the resource is gone.
pub async fn work(work: Work) -> Outcome<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let listening = tokio::task::spawn_blocking(move || {
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        told.store(true, Ordering::Release);
    });
    let Some(client) = connect(&work, &stop).await? else {
        return Ok(());
    };
    let log = Log::file(&work.log, &work.who)?;
    let ops = Arc::new(AtomicU64::new(1));
    let mut names = NAMES.to_vec();
    names.retain(|(_, kind)| kind.fits(&client.guarantees()));
    let mut tasks = JoinSet::new();
    for task in 0..work.tasks {
        let hand = Hand {
            client: client.clone(),
            process: work.who.clone(),
            log: log.of(format!("{}/{task}", work.who)),
            gate: Visitor::new(&work.gate)?,
            random: Random::of(work.seed, task),
            alone: work.tasks == 1,
            owner: Owner::new(),
            owner_number: u64::from(std::process::id()) * 100 + task + 1,
            lease: dead_after(&work),
            rest: work.rest,
            names: names.clone(),
            ops: ops.clone(),
        };
        let stop = stop.clone();
        let _ = tasks.spawn(hand.go_on_while(move || !stop.load(Ordering::Acquire)));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    listening.abort();
    let _ = client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Tries until it is connected: the servers may be down. None if it is told to end first.
async fn connect(work: &Work, stop: &AtomicBool) -> Outcome<Option<Client>> {
    while !stop.load(Ordering::Acquire) {
        let options = ConnectOptions::new()
            .lease(work.lease)
            .bound(TurnBound::new(TURNS, work.lease))
            .identity(Identity::of_this_process().called(&work.who));
        match options.connect(&work.url).await {
            Ok(client) => return Ok(Some(client)),
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// For how long what was sent can be on its way to a server, or in it, before it counts.
const ON_THE_WAY: Duration = Duration::from_millis(500);

/// When a dead holder's lock has surely passed on. Its last words may arrive after its death; in ZooKeeper and Consul its
/// session has to end first, and in etcd its lease: whole seconds, and half a second until the server looks.
fn dead_after(work: &Work) -> Duration {
    match work.url.split([':', '+']).next() {
        Some("file" | "sqlite") => work.lease,
        Some("zookeeper") => work.lease * 4 / 3 + ON_THE_WAY,
        Some("etcd") => {
            let lease = (work.lease * 4 / 3).as_millis().div_ceil(1000).max(2);
            Duration::from_secs(lease as u64) + ON_THE_WAY * 2
        }
        Some("consul") => work.lease * 2 + ON_THE_WAY,
        _ => work.lease + ON_THE_WAY,
    }
}
