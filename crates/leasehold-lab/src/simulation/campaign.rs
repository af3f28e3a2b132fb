//! Many runs in a row, with a line of what they came to.

use std::path::Path;
use std::time::Duration;

use leasehold::engine::Clock;

use super::{Locks, run, simulate};
use crate::Outcome;
use crate::history::write;

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enough {
    /// After so many runs of each.
    Seeds(u64),
    /// After so many simulated hours of each.
    Hours(u64),
}

#[derive(Debug, Default)]
struct Sum {
    seeds: u64,
    simulated: Duration,
    holds: u64,
    faults: u64,
    losses: u64,
    refused: u64,
}

impl Sum {
    fn hours(&self) -> f64 {
        self.simulated.as_secs_f64() / 3600.0
    }

    fn is_enough(&self, enough: Enough) -> bool {
        match enough {
            Enough::Seeds(seeds) => self.seeds >= seeds,
            Enough::Hours(hours) => self.hours() >= hours as f64,
        }
    }

    fn print(&self, locks: Locks, end: &str) {
        println!(
            "{}: {} seeds, {:.1} simulated hours, {} holds, {} faults on a held lock, {} losses told, {} effects refused: {end}",
            locks.word(),
            self.seeds,
            self.hours(),
            self.holds,
            self.faults,
            self.losses,
            self.refused
        );
    }
}

/// How often to say how far it is, in microseconds.
const PROGRESS: u64 = 60_000_000;

/// Runs seed after seed of each kind, and ends at the first broken promise. Whether every promise was kept.
///
/// # Errors
/// If a run did not come to an end.
pub fn simulate_all(locks: &[Locks], from: u64, enough: Enough) -> Outcome<bool> {
    let clock = Clock::boot();
    for &locks in locks {
        let (mut sum, mut said) = (Sum::default(), clock.now());
        while !sum.is_enough(enough) {
            let seed = from + sum.seeds;
            let simulated = simulate(locks, seed);
            let (verdict, time) =
                simulated.map_err(|error| format!("{} seed {seed}: {error}", locks.word()))?;
            if !verdict.is_good() {
                println!("{} seed {seed}:\n{verdict}", locks.word());
                let history = format!("{}-{seed}.jsonl", locks.word());
                write(Path::new(&history), &run(locks, seed)?.0)?;
                println!("history: {history}");
                return Ok(false);
            }
            sum.seeds += 1;
            sum.simulated += time;
            sum.holds += verdict.stats.holds;
            sum.faults += verdict.stats.faults_held;
            sum.losses += verdict.stats.losses;
            sum.refused += verdict.stats.refused;
            if clock.now() - said > PROGRESS {
                said = clock.now();
                sum.print(locks, "so far");
            }
        }
        sum.print(locks, "every promise was kept");
    }
    Ok(true)
}
