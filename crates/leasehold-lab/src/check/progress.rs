//! No request waits for a lock that is free, and nothing is left behind.

use leasehold::engine::Micros;

use super::Bounds;
use super::verdict::{Promise, Verdict};
use crate::history::{Answer, History, Hold};

/// All requests for one name.
pub(super) fn judge(holds: &[Hold], history: &History, bounds: &Bounds, verdict: &mut Verdict) {
    let gaps = gaps(holds, history, bounds.stall);
    if gaps.is_empty() {
        return;
    }
    let waits =
        |hold: &&Hold| hold.waits && !hold.several && !hold.hit && hold.answer != Answer::Failed;
    for hold in holds.iter().filter(waits) {
        // Gaps that begin and end inside the wait break it; of those at its ends only a part counts.
        let first = gaps.partition_point(|(_, end)| *end <= hold.call);
        let stalled = gaps[first..]
            .iter()
            .take_while(|(start, _)| *start < hold.got)
            .find(|(start, end)| {
                let (start, end) = ((*start).max(hold.call), (*end).min(hold.got));
                end - start > bounds.stall
            });
        if let Some((start, end)) = stalled {
            let (start, end) = ((*start).max(hold.call), (*end).min(hold.got));
            verdict.broke(Promise::Progress, hold.name, start, |verdict| {
                format!(
                    "{} waited {} ms for a lock that no request can have held",
                    verdict.say(hold),
                    (end - start) / 1_000
                )
            });
        }
    }
}

/// The times without a possible holder and without a fault, longer than the bound.
fn gaps(holds: &[Hold], history: &History, stall: Micros) -> Vec<(Micros, Micros)> {
    let mut taken: Vec<(Micros, Micros)> = holds.iter().filter_map(occupied).collect();
    taken.extend(&history.faults);
    taken.sort_unstable();
    let last = holds.iter().map(|hold| hold.got).max().unwrap_or(0);
    let mut free_since = 0;
    let mut gaps = Vec::new();
    for (start, end) in taken.into_iter().chain([(last, last)]) {
        if start > free_since && start - free_since > stall {
            gaps.push((free_since, start));
        }
        free_since = free_since.max(end);
    }
    gaps
}

/// When a request can have been in the way of others.
fn occupied(hold: &Hold) -> Option<(Micros, Micros)> {
    // Granted to a process that stood still or died before it could say so, or that had more to ask for.
    let unseen = hold.hit || hold.several;
    let since = if unseen { hold.call } else { hold.got };
    match hold.answer {
        Answer::Granted | Answer::Unknown => Some((since, hold.free)),
        // It was in line and cut off, and may have been granted without knowing, before it joined again and that failed.
        Answer::Failed if hold.hit && hold.waits => Some((hold.call, hold.free)),
        _ => None,
    }
}

/// Claims that are still there after every process has gone.
pub(super) fn left_behind(history: &History, verdict: &mut Verdict) {
    let mut left: Vec<_> = history
        .left
        .iter()
        .filter(|(_, count)| **count > 0)
        .collect();
    left.sort_unstable();
    for (name, count) in left {
        verdict.broke(Promise::Progress, *name, 0, |_| {
            format!("{count} left behind after every process has gone")
        });
    }
}
