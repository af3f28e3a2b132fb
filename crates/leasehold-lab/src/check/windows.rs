//! Held windows against the capacity.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use leasehold::engine::Micros;

use super::Bounds;
use super::verdict::{Promise, Verdict};
use crate::history::Hold;

/// The outermost holds of one name, in order of fences, and when each began at the latest.
pub(super) fn judge(
    holds: &[Hold],
    begins: &[(Micros, usize)],
    bounds: &Bounds,
    verdict: &mut Verdict,
) {
    let windows: Vec<Window> = holds
        .iter()
        .enumerate()
        .filter_map(|(index, hold)| Window::new(hold, index, bounds))
        .collect();
    let broken = sweep(holds, windows.clone(), None, bounds, verdict);
    // Where a lock may be lost early the windows say nothing of the order.
    if broken == 0 && bounds.overlap == 0 {
        let with_begin = |window: Window| Window {
            start: begins[window.hold].0,
            ..window
        };
        if begins
            .iter()
            .enumerate()
            .any(|(index, (_, before))| *before != index)
        {
            let windows = windows.into_iter().map(with_begin).collect();
            let _ = sweep(holds, windows, Some(Promise::FenceWindow), bounds, verdict);
        }
    }
}

#[derive(Clone, Copy)]
struct Window {
    start: Micros,
    end: Micros,
    hold: usize,
}

impl Window {
    /// Two windows overlap by more than the bound exactly if they overlap once both ends are moved back by it.
    fn new(hold: &Hold, index: usize, bounds: &Bounds) -> Option<Self> {
        let end = hold.end.saturating_sub(bounds.overlap);
        let there = bounds.overlap == 0 || end > hold.got;
        there.then_some(Self {
            start: hold.got,
            end,
            hold: index,
        })
    }
}

/// Goes through the windows by time and counts those that do not fit. At one instant releases come first, then acquires: in
/// order of fences where that is asked, else the shortest first.
fn sweep(
    holds: &[Hold],
    mut windows: Vec<Window>,
    named: Option<Promise>,
    bounds: &Bounds,
    verdict: &mut Verdict,
) -> u64 {
    windows.sort_by_key(|window| {
        let hold = &holds[window.hold];
        let fence = if named.is_some() { hold.fence } else { 0 };
        (window.start, fence, window.end, hold.weight)
    });
    let mut now: BinaryHeap<Reverse<(Micros, usize)>> = BinaryHeap::new();
    let mut taken: u64 = 0;
    let mut broken = 0;
    for window in windows {
        while let Some(&Reverse((end, index))) = now.peek()
            && end <= window.start
        {
            taken -= u64::from(holds[index].weight);
            let _ = now.pop();
        }
        let hold = &holds[window.hold];
        taken += u64::from(hold.weight);
        now.push(Reverse((window.end, window.hold)));
        let mixed = || {
            now.iter()
                .any(|Reverse((_, other))| holds[*other].capacity != hold.capacity)
        };
        if taken > u64::from(hold.capacity) || (now.len() > 1 && mixed()) {
            broken += 1;
            let others = now
                .iter()
                .filter(|Reverse((_, other))| *other != window.hold);
            let other = others.max().map(|Reverse((_, other))| holds[*other]);
            let promise = named.unwrap_or_else(|| promise(hold, bounds));
            verdict.broke(promise, hold.name, window.start, |verdict| {
                let other = other.map_or_else(String::new, |other| verdict.say(&other));
                format!("{} while {other}", verdict.say(hold))
            });
        }
    }
    broken
}

fn promise(hold: &Hold, bounds: &Bounds) -> Promise {
    match (bounds.overlap, hold.capacity) {
        (1.., _) => Promise::BoundedOverlap,
        (_, 1) => Promise::Exclusion,
        (_, u32::MAX) => Promise::ReadWrite,
        _ => Promise::Capacity,
    }
}
