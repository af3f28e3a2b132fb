//! Locks that were taken away: the holder is told within the bound, and nothing else is promised meanwhile.

use super::verdict::{Promise, Verdict};
use super::Bounds;
use crate::history::{Answer, History, Hold};

/// The requests with their windows ended where they were taken away.
pub(super) fn apply(history: &History, bounds: &Bounds, verdict: &mut Verdict) -> Vec<Hold> {
    let mut holds = history.holds.clone();
    if history.taken.is_empty() {
        return holds;
    }
    let mut taken = history.taken.clone();
    taken.sort_by_key(|taken| (taken.name, taken.since));
    for hold in holds.iter_mut().filter(|hold| hold.answer == Answer::Granted) {
        // The first taking that began while it was held.
        let first = taken.partition_point(|taken| (taken.name, taken.since) <= (hold.name, hold.got));
        let Some(taken) = taken.get(first).filter(|taken| taken.name == hold.name && taken.since < hold.end) else {
            continue;
        };
        let (told, end) = (taken.t.saturating_add(bounds.told), hold.end);
        if end > told && !hold.hit {
            verdict.broke(Promise::ToldLoss, hold.name, end, |verdict| {
                format!("{} was taken away by {} and told {} ms later", verdict.say(hold), taken.t, (end - taken.t) / 1_000)
            });
        }
        if hold.told_held && end > taken.t {
            verdict.broke(Promise::ToldOutcome, hold.name, end, |verdict| {
                format!("{} was told that it held until its release; it was taken away by {}", verdict.say(hold), taken.t)
            });
        }
        hold.end = taken.since;
    }
    holds
}
