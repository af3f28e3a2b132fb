//! Judges a history, promise by promise, in O(n log n).
//!
//! Any order of effects must put a hold around its held window, and the hold *may* be exactly that window: acquired when the
//! answer came, released when the release was called. So the windows decide, and no search is needed. Where there are
//! fences the order of the acquires is known too: a hold begins at the latest when any hold with a larger fence was
//! answered. Requests with an unknown outcome have no window.

mod effects;
mod fences;
pub mod generate;
mod order;
mod outcomes;
mod owners;
mod progress;
pub mod simple;
mod taken;
mod verdict;
mod windows;

use leasehold::engine::Micros;

pub use self::verdict::{Broken, Promise, Stats, Verdict};
use crate::history::{Answer, History, Hold};

/// The promises of an engine in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How long two held windows may overlap where the engine can lose a lock early (failover); 0 elsewhere.
    pub overlap: Micros,
    /// From a lock taken away to the loss told.
    pub told: Micros,
    /// How many later calls may be served before a claim in line.
    pub overtakes: u64,
    /// How long a free lock may keep a request waiting.
    pub stall: Micros,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            overlap: 0,
            told: 1_000_000,
            overtakes: 0,
            stall: 2_000_000,
        }
    }
}

/// The least that a history must contain, lest it prove nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demands {
    /// Holds that had to wait for another hold.
    pub contended: u64,
    /// Faults that hit a holder.
    pub faults_held: u64,
    /// Effects of a stale holder that the resource refused.
    pub refused: u64,
}

/// Judges a history.
pub fn judge(history: &History, bounds: &Bounds, demands: &Demands) -> Verdict {
    let mut verdict = Verdict::new(history);
    let mut holds = taken::apply(history, bounds, &mut verdict);
    // One sort puts each name together, in order of fences.
    holds.sort_by_key(|hold| (hold.name, hold.fence, hold.got));
    for of_name in holds.chunk_by(|a, b| a.name == b.name) {
        judge_name(of_name, history, bounds, &mut verdict);
    }
    effects::judge(history, &mut verdict);
    progress::left_behind(history, &mut verdict);
    verdict.demand(demands);
    verdict
}

/// All requests for one name, in order of fences.
fn judge_name(holds: &[Hold], history: &History, bounds: &Bounds, verdict: &mut Verdict) {
    let granted: Vec<Hold> = holds
        .iter()
        .filter(|hold| hold.answer == Answer::Granted)
        .copied()
        .collect();
    let granted = owners::outermost(granted, verdict);
    let begins = fences::begins(&granted);
    fences::judge(&granted, &begins, verdict);
    windows::judge(&granted, &begins, bounds, verdict);
    order::judge(&granted, bounds, verdict);
    outcomes::judge(holds, verdict);
    progress::judge(holds, history, bounds, verdict);
}
