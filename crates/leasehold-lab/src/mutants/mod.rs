//! Planted bugs: each is one change to our own source, made in a copy; the scenario named with it must catch it.
//!
//! The copy is built once, with every bug in it and each behind a switch.

mod copy;
mod list;
mod plant;
mod scenario;

use std::collections::BTreeSet;
use std::path::Path;

use leasehold::engine::{Clock, Micros};

use self::copy::Copy;
use self::scenario::catches;
use crate::Outcome;

/// One planted bug.
#[derive(Debug)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// The file below `crates/leasehold/src`.
    pub file: &'static str,
    /// The text there, once.
    pub before: &'static str,
    /// The text instead. In Rust `PLANTED` is whether this bug is on.
    pub after: &'static str,
    /// The scenario that must catch it: arguments of `leasehold-lab`, or `test FILE NAME` for a test of the engines.
    pub scenario: &'static str,
}

/// Builds a copy of the source below `into` and runs the scenario of each bug; prints caught or missed. Whether all were
/// caught, and nothing was found where there is no bug.
///
/// # Errors
/// If a copy cannot be made or built.
pub fn run(source: &Path, into: &Path, only: Option<&str>) -> Outcome<bool> {
    let clock = Clock::boot();
    let start = clock.now();
    let named = |mutant: &&Mutant| {
        only.is_none_or(|only| only.split(',').any(|words| mutant.name.contains(words)))
    };
    let meant: Vec<_> = list::all().filter(named).collect();
    let scenarios: BTreeSet<_> = meant.iter().map(|mutant| mutant.scenario).collect();
    let copy = Copy::build(source, into, &scenarios)?;
    println!(
        "built in {} seconds\n\n| scenario | without a bug | seconds |\n|---|---|---|",
        seconds(&clock, start)
    );
    let mut clean = 0;
    for text in &scenarios {
        let begin = clock.now();
        let found = catches(&copy, text, "")?;
        clean += usize::from(found.is_none());
        let word = found.map_or("clean".to_owned(), |found| format!("FOUND {found}"));
        println!("| {text} | {word} | {} |", seconds(&clock, begin));
    }
    println!("\n| planted bug | where | scenario | broken promise | |\n|---|---|---|---|---|");
    let mut caught = 0;
    for mutant in &meant {
        let found = catches(&copy, mutant.scenario, mutant.name)?;
        caught += usize::from(found.is_some());
        println!(
            "| {} | {} | {} | {} | {} |",
            mutant.name,
            mutant.file,
            mutant.scenario,
            found.as_deref().unwrap_or("none"),
            if found.is_some() { "caught" } else { "MISSED" }
        );
    }
    println!(
        "\ncaught {caught} of {}; {clean} of {} scenarios clean without a bug; {} seconds",
        meant.len(),
        scenarios.len(),
        seconds(&clock, start)
    );
    Ok(caught == meant.len() && clean == scenarios.len())
}

fn seconds(clock: &Clock, since: Micros) -> u64 {
    (clock.now() - since) / 1_000_000
}
