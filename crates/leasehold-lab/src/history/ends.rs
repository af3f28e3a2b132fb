//! How long a request without a known end can be in the way.

use std::collections::HashMap;

use leasehold::engine::Micros;

use super::assemble::belongs;
use super::{History, Hold};

/// Ends of requests, once all events are in.
#[derive(Default)]
pub(super) struct Ends {
    pub(super) loose: Vec<Loose>,
    /// The processes that were cut off, and when.
    pub(super) cuts: Vec<(String, Micros, Micros)>,
    /// When each process stood still, in order.
    pub(super) stops: HashMap<u32, Vec<(Micros, Micros)>>,
}

/// A request without a known end.
pub(super) struct Loose {
    /// Its place among the holds.
    pub(super) at: usize,
    pub(super) lease: Micros,
    /// When its process let it go; none if that died.
    pub(super) let_go: Option<Micros>,
}

impl Ends {
    pub(super) fn apply(&self, history: &mut History) {
        self.outlast_beats(history);
        self.outlast_faults(history);
    }

    /// A beat may be under way when a claim is let go. If it comes before the release, or no release comes, the engine keeps
    /// the claim for a lease more.
    fn outlast_beats(&self, history: &mut History) {
        for loose in &self.loose {
            let hold = &mut history.holds[loose.at];
            if let Some(heard) = self.last_beat(loose, hold) {
                hold.free = hold.free.max(heard.saturating_add(loose.lease));
            }
        }
    }

    /// When the engine may hear the last beat: it is waited for a third of the lease, not counting the time in which its
    /// process stands still. Without any word for a lease the claim is gone, and a beat changes nothing.
    fn last_beat(&self, loose: &Loose, hold: &Hold) -> Option<Micros> {
        let let_go = loose.let_go?;
        let mut heard = let_go.saturating_add(loose.lease / 3);
        for (from, to) in self.stops.get(&hold.who).into_iter().flatten() {
            if *from <= heard && *to > let_go {
                heard += to - from.max(&let_go);
            }
        }
        Some(heard.min(let_go.saturating_add(loose.lease)))
    }

    /// A request sent before or during a fault may arrive after it: it can be in the way for a lease more.
    fn outlast_faults(&self, history: &mut History) {
        let all = history.faults.iter().map(|(from, to)| ("", *from, *to));
        let cuts = self.cuts.iter().map(|(who, from, to)| (&**who, *from, *to));
        let mut faults: Vec<_> = all.chain(cuts).collect();
        faults.sort_unstable_by_key(|(_, from, _)| *from);
        for loose in &self.loose {
            let hold = &mut history.holds[loose.at];
            let who = &history.whos[hold.who as usize];
            for (victim, from, to) in &faults {
                let own = victim.is_empty() || belongs(who, victim);
                if own && *from <= hold.free && *to >= hold.call {
                    hold.free = hold.free.max(to.saturating_add(loose.lease));
                }
            }
        }
    }
}
