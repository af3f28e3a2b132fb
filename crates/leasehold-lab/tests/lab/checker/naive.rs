//! Rules of the checker written down as slowly and plainly as possible.

use leasehold_lab::check::Bounds;
use leasehold_lab::history::{Answer, Hold, NEVER};

/// How many were told busy without a possible holder or waiter: looks at every instant.
pub(crate) fn busy_for_nothing(holds: &[Hold]) -> u64 {
    let last = holds.iter().map(|hold| hold.got).max().unwrap_or(0);
    let possible = |hold: &&Hold| match hold.answer {
        Answer::Granted | Answer::Unknown => true,
        Answer::Busy | Answer::Failed => hold.waits,
    };
    let wrong = |busy: &&Hold| {
        (busy.call..=busy.got.min(last)).all(|t| {
            let others = holds
                .iter()
                .filter(|hold| hold.op != busy.op)
                .filter(possible);
            let others = others.filter(|hold| hold.call <= t);
            let taken = others.map(|hold| {
                let held = if t <= hold.free { hold.weight } else { 0 };
                // Several permits may be taken one after the other.
                let line = hold.weight > 1 && t <= hold.got;
                u64::from(held) + u64::from(if line { hold.capacity } else { 0 })
            });
            taken.sum::<u64>() + u64::from(busy.weight) <= u64::from(busy.capacity)
        })
    };
    holds
        .iter()
        .filter(|hold| hold.answer == Answer::Busy)
        .filter(wrong)
        .count() as u64
}

/// How many in line were overtaken too often: compares each with each.
pub(crate) fn overtaken(holds: &[Hold], bounds: &Bounds) -> u64 {
    let granted = || holds.iter().filter(|hold| hold.answer == Answer::Granted);
    let too_often = |hold: &&Hold| {
        let before = granted().filter(|other| other.call > hold.queued && other.got < hold.got);
        let excluded = before.filter(|other| {
            u64::from(other.weight) + u64::from(hold.weight) > u64::from(hold.capacity)
        });
        hold.queued != NEVER && excluded.count() as u64 > bounds.overtakes
    };
    granted().filter(too_often).count() as u64
}

/// How many waited too long for a lock without a possible holder: looks at every instant.
pub(crate) fn stalled(holds: &[Hold], bounds: &Bounds) -> u64 {
    let since = |hold: &Hold| if hold.several { hold.call } else { hold.got };
    let taken = |t: u64| {
        holds.iter().any(|hold| match hold.answer {
            Answer::Granted | Answer::Unknown => since(hold) <= t && t < hold.free,
            _ => false,
        })
    };
    // Held for less than an instant is held, too.
    let touched = |t: u64| {
        let held = |hold: &&Hold| matches!(hold.answer, Answer::Granted | Answer::Unknown);
        holds.iter().filter(held).any(|hold| since(hold) == t)
    };
    let waits = |hold: &&Hold| hold.waits && !hold.several && hold.answer != Answer::Failed;
    let too_long = |hold: &&Hold| {
        let mut free = 0;
        (hold.call..hold.got).any(|t| {
            free = if touched(t) { 0 } else { free };
            free = if taken(t) { 0 } else { free + 1 };
            free > bounds.stall
        })
    };
    holds.iter().filter(waits).filter(too_long).count() as u64
}

/// Whether any two windows that exclude each other overlap by more than the bound, for a mutex.
pub(crate) fn overlaps(holds: &[Hold], bound: u64) -> bool {
    let granted: Vec<&Hold> = holds
        .iter()
        .filter(|hold| hold.answer == Answer::Granted)
        .collect();
    let pair = |a: &Hold, b: &Hold| a.end.min(b.end).saturating_sub(a.got.max(b.got)) > bound;
    granted
        .iter()
        .any(|a| granted.iter().any(|b| a.op != b.op && pair(a, b)))
}

/// Whether two holds have one fence.
pub(crate) fn same_fence(holds: &[Hold]) -> bool {
    let with = |hold: &Hold| hold.answer == Answer::Granted && hold.fence > 0;
    holds.iter().any(|a| {
        with(a)
            && holds
                .iter()
                .any(|b| with(b) && a.op != b.op && a.fence == b.fence)
    })
}
