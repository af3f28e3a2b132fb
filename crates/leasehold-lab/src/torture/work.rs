//! A worker process: a few tasks that lock until they are told to end.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::engine::Identity;
use leasehold::{Bound, Options, Owner};
use tokio::task::JoinSet;

use super::gate::Visitor;
use super::hand::{Hand, NAMES, TURNS};
use crate::Outcome;
use crate::history::Log;
use crate::random::Random;

/// What a worker process is told on its command line.
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
    let options = Options::new()
        .lease(work.lease)
        .bound(Bound::new(TURNS, Duration::from_millis(10)));
    let identity = Identity::of_this_process().called(&work.who);
    let client = options.identity(identity).connect(&work.url).await?;
    let log = Log::file(&work.log, &work.who)?;
    let stop = Arc::new(AtomicBool::new(false));
    let ops = Arc::new(AtomicU64::new(1));
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
            lease: work.lease,
            rest: work.rest,
            names: NAMES.to_vec(),
            ops: ops.clone(),
        };
        let stop = stop.clone();
        let _ = tasks.spawn(hand.go_on_while(move || !stop.load(Ordering::Acquire)));
    }
    let told = stop.clone();
    let listening = tokio::task::spawn_blocking(move || {
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        told.store(true, Ordering::Release);
    });
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    listening.abort();
    let _ = client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}
