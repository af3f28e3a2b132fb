//! Many seeds in a row.

use std::collections::BTreeMap;

use leasehold::engine::Clock;

use super::{Run, explore, shrink};
use crate::Outcome;

/// The sum of many seeds.
#[derive(Debug, Default)]
pub struct Sum {
    /// How many there were.
    pub seeds: u64,
    /// How many guards were got.
    pub granted: u64,
    /// How many of them were lost.
    pub lost: u64,
    /// How many messages and tasks were late or lost.
    pub made: u64,
    /// The seeds that broke a promise, by what was seen.
    pub broken: BTreeMap<String, Vec<u64>>,
}

impl Sum {
    fn add(&mut self, seed: u64, run: &Run) {
        self.seeds += 1;
        self.granted += run.granted;
        self.lost += run.lost;
        self.made += run.made.len() as u64;
        if let Some(broken) = &run.broken {
            self.broken.entry(broken.family()).or_default().push(seed);
        }
    }

    fn print(&self, end: &str) {
        println!(
            "{} programs, {} guards, {} of them lost, {} messages and tasks late or lost: {end}",
            self.seeds, self.granted, self.lost, self.made
        );
    }
}

/// How often to say how far it is, in microseconds.
const PROGRESS: u64 = 60_000_000;

/// Runs seed after seed. Ends at the first that breaks a promise, or goes on and lists them all.
///
/// # Errors
/// If there is no runtime.
pub fn explore_all(from: u64, seeds: u64, go_on: bool) -> Outcome<Sum> {
    let clock = Clock::boot();
    let (mut sum, mut said) = (Sum::default(), clock.now());
    for seed in from..from + seeds {
        sum.add(seed, &explore(seed)?);
        if !go_on && !sum.broken.is_empty() {
            break;
        }
        if clock.now() - said > PROGRESS {
            said = clock.now();
            sum.print("so far");
        }
    }
    Ok(sum)
}

/// As [`explore_all`], with a line of what it came to, and a short program for the first seed of each broken promise.
/// Whether every promise was kept.
///
/// # Errors
/// If there is no runtime.
pub fn report(from: u64, seeds: u64, go_on: bool) -> Outcome<bool> {
    let sum = explore_all(from, seeds, go_on)?;
    for (family, seeds) in &sum.broken {
        println!(
            "{family}: broken by {} seeds, {:?} …",
            seeds.len(),
            &seeds[..seeds.len().min(8)]
        );
        match shrink::shrink(seeds[0])? {
            Some(short) => println!("{short}"),
            None => println!("seed {} broke it once, and not again", seeds[0]),
        }
    }
    let good = sum.broken.is_empty();
    sum.print(if good {
        "every promise was kept"
    } else {
        "BROKEN"
    });
    Ok(good)
}
