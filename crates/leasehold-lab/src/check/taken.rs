//! Locks that were taken away: the holder is told within the bound, and nothing else is promised meanwhile.

use leasehold::engine::FENCE_BLOCK;

use super::Bounds;
use super::verdict::{Promise, Verdict};
use crate::history::{Answer, History, Hold, Taken};

/// The requests with their windows ended where they were taken away.
pub(super) fn apply(history: &History, bounds: &Bounds, verdict: &mut Verdict) -> Vec<Hold> {
    let mut holds = history.holds.clone();
    if history.taken.is_empty() {
        return holds;
    }
    let mut taken = history.taken.clone();
    taken.sort_by_key(|taken| (taken.name, taken.fence));
    for hold in holds
        .iter_mut()
        .filter(|hold| hold.answer == Answer::Granted)
    {
        let Some(taken) = of_its_grant(&taken, hold) else {
            continue;
        };
        let told = taken.t.saturating_add(bounds.told);
        let lied = hold.told_held && hold.asked && hold.end > taken.t;
        if lied || (hold.end > told && !hold.hit) {
            let promise = if hold.told_held {
                Promise::ToldOutcome
            } else {
                Promise::ToldLoss
            };
            verdict.broke(promise, hold.name, hold.end, |verdict| {
                let late = (hold.end - taken.t) / 1_000;
                format!(
                    "{} was taken away by {} and did not know {late} ms later",
                    verdict.say(hold),
                    taken.t
                )
            });
        }
        hold.end = hold.end.min(taken.since);
        if hold.end < hold.got {
            // The yes was on its way when the grant was taken away: it never held.
            hold.answer = Answer::Unknown;
        }
    }
    holds
}

/// The eviction that took the grant of this hold, if any. A grant serves a block of turns, each with its own fence.
fn of_its_grant<'a>(taken: &'a [Taken], hold: &Hold) -> Option<&'a Taken> {
    let after = taken.partition_point(|taken| (taken.name, taken.fence) <= (hold.name, hold.fence));
    let taken = taken.get(after.checked_sub(1)?)?;
    let own = taken.name == hold.name && hold.fence - taken.fence < u64::from(FENCE_BLOCK);
    (own && taken.since < hold.end).then_some(taken)
}
