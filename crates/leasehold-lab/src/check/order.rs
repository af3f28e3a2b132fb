//! Bounded overtaking: how many later calls were served before a claim that was in line.

use std::collections::BTreeSet;

use super::Bounds;
use super::verdict::{Promise, Verdict};
use crate::history::{Hold, NEVER};

/// The outermost holds of one name.
///
/// Only calls that could not hold together with the claim count: those that could may be answered in any order.
pub(super) fn judge(holds: &[Hold], bounds: &Bounds, verdict: &mut Verdict) {
    let mut by_answer: Vec<&Hold> = holds.iter().collect();
    by_answer.sort_by_key(|hold| hold.got);
    count_contended(&by_answer, verdict);
    if holds.iter().all(|hold| hold.queued == NEVER) {
        return;
    }
    let mut calls: Vec<_> = holds.iter().map(|hold| hold.call).collect();
    calls.sort_unstable();
    let weights: BTreeSet<u32> = holds.iter().map(|hold| hold.weight).collect();
    let mut served: Vec<(u32, Counter)> = weights
        .into_iter()
        .map(|weight| (weight, Counter::new(calls.len())))
        .collect();
    for at_once in by_answer.chunk_by(|a, b| a.got == b.got) {
        for hold in at_once
            .iter()
            .filter(|hold| hold.queued != NEVER && !hold.hit)
        {
            let after = calls.partition_point(|call| *call <= hold.queued);
            let excluded =
                |weight: u32| u64::from(weight) + u64::from(hold.weight) > u64::from(hold.capacity);
            let those = served.iter().filter(|(weight, _)| excluded(*weight));
            let overtakes: u64 = those.map(|(_, counter)| counter.from(after)).sum();
            verdict.stats.overtakes = verdict.stats.overtakes.max(overtakes);
            if overtakes > bounds.overtakes {
                verdict.broke(Promise::Overtaking, hold.name, hold.got, |verdict| {
                    format!(
                        "{} was overtaken {overtakes} times, {} are allowed",
                        verdict.say(hold),
                        bounds.overtakes
                    )
                });
            }
        }
        for hold in at_once {
            let own = calls.partition_point(|call| *call < hold.call);
            if let Some((_, counter)) = served.iter_mut().find(|(weight, _)| *weight == hold.weight)
            {
                counter.add(own);
            }
        }
    }
}

/// How many were asked for while another held.
fn count_contended(by_answer: &[&Hold], verdict: &mut Verdict) {
    let mut latest_end = 0;
    for hold in by_answer {
        verdict.stats.contended += u64::from(hold.call < latest_end);
        latest_end = latest_end.max(hold.end);
    }
}

/// Counts by index, sums from an index on, both in O(log n).
struct Counter(Vec<u64>);

impl Counter {
    fn new(len: usize) -> Self {
        Self(vec![0; len + 1])
    }

    fn add(&mut self, index: usize) {
        let mut at = self.0.len() - 1 - index;
        while at < self.0.len() {
            self.0[at] += 1;
            at += at & at.wrapping_neg();
        }
    }

    fn from(&self, index: usize) -> u64 {
        let mut at = self.0.len() - 1 - index;
        let mut sum = 0;
        while at > 0 {
            sum += self.0[at];
            at -= at & at.wrapping_neg();
        }
        sum
    }
}
