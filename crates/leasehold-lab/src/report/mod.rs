//! The report of a run, saved; and the track record that is written from it.

mod ledger;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use leasehold::engine::Clock;
use serde::{Deserialize, Serialize};

pub use self::ledger::record;
use crate::Outcome;
use crate::check::Verdict;
use crate::torture::{FaultKind, Plan};

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// When it ended, in seconds of the wall clock.
    pub when: u64,
    /// The version of the source.
    pub commit: String,
    /// The engine's word.
    pub engine: String,
    /// The seed.
    pub seed: u64,
    /// How long it ran.
    pub seconds: u64,
    /// How many processes.
    pub workers: u64,
    /// The lease.
    pub lease_ms: u64,
    /// The kinds of faults.
    pub faults: Vec<String>,
    /// The checks on the engine.
    #[serde(default)]
    pub asked: Vec<String>,
    /// How often each fault was made.
    #[serde(default)]
    pub made: BTreeMap<String, u64>,
    /// Counts of the history.
    pub stats: serde_json::Value,
    /// The broken promises, with what happened.
    pub broken: serde_json::Value,
    /// Whether every promise was kept.
    pub good: bool,
    /// The same for people.
    pub text: String,
}

impl Report {
    /// Of a run that has just ended. A fault that was to be made and never was proves nothing.
    pub fn new(
        plan: &Plan,
        asked: &[String],
        made: &BTreeMap<FaultKind, u64>,
        verdict: &Verdict,
    ) -> Self {
        let made: BTreeMap<String, u64> = plan
            .faults
            .iter()
            .map(|kind| (kind.word().to_owned(), made.get(kind).copied().unwrap_or(0)))
            .collect();
        let never: Vec<_> = made.iter().filter(|(_, count)| **count == 0).collect();
        let mut text = asked.join("\n");
        let counts: Vec<_> = made
            .iter()
            .map(|(word, count)| format!("{word} {count}"))
            .collect();
        text += &format!("\nmade: {}\n{verdict}", counts.join("  "));
        for (word, _) in &never {
            text += &format!("\nVACUOUS: {word} was never made");
        }
        Self {
            when: Clock::boot().wall() / 1_000_000,
            commit: commit().unwrap_or_else(|| "unknown".into()),
            engine: plan.url.split(':').next().unwrap_or_default().to_owned(),
            seed: plan.seed,
            seconds: plan.time.as_secs(),
            workers: plan.workers,
            lease_ms: plan.lease.as_millis() as u64,
            faults: plan
                .faults
                .iter()
                .map(|kind| kind.word().to_owned())
                .collect(),
            asked: asked.to_vec(),
            good: verdict.is_good() && never.is_empty(),
            made,
            stats: serde_json::json!(verdict.stats),
            broken: serde_json::json!(verdict.broken),
            text,
        }
    }

    /// Writes it to a file.
    ///
    /// # Errors
    /// If that fails.
    pub fn save(&self, path: &Path) -> Outcome<()> {
        Ok(std::fs::write(path, serde_json::to_string_pretty(self)?)?)
    }

    /// Reads a file that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// If it is not one.
    pub fn load(path: &Path) -> Outcome<Self> {
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    }
}

/// The commit of the source we stand in, with a mark if it was changed since.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if changed {
        format!("{commit}+")
    } else {
        commit
    })
}
