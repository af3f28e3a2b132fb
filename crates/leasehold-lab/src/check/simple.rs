//! A second judge, as plain as can be: windows from the grant as told to the release, the loss, the deadline or the crash,
//! and a count of what overlaps. It reads the records itself and shares nothing with the first judge; where the two
//! disagree one of them is wrong.

use std::collections::HashMap;

use leasehold::engine::{FENCE_BLOCK, Micros};

use super::verdict::{Promise, Verdict};
use crate::history::{Record, What};

/// When a fault that may cost a lock was on.
pub type Fault = (Micros, Micros);

#[derive(Debug, Clone)]
struct Window<'a> {
    name: &'a str,
    process: &'a str,
    weight: u64,
    capacity: u64,
    owner: u64,
    call: Micros,
    start: Micros,
    end: Micros,
    until: Micros,
    release: Micros,
    fence: u64,
}

/// How many windows began while others left no room for them.
pub fn overlaps(records: &[Record], lossy: &[Fault]) -> u64 {
    let mut windows = windows(records);
    windows.sort_by_key(|window| (window.start, window.end));
    let mut active: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut broken = 0;
    for (index, window) in windows.iter().enumerate() {
        let others = active.entry(window.name).or_default();
        others.retain(|other| windows[*other].end > window.start);
        let counts = |other: &&usize| {
            let other = &windows[**other];
            let same =
                other.fence == window.fence && other.owner == window.owner && window.owner != 0;
            !same && !excused(&windows, other, window, lossy)
        };
        let taken: u64 = others
            .iter()
            .filter(counts)
            .map(|other| windows[*other].weight)
            .sum();
        broken += u64::from(taken + window.weight > window.capacity);
        others.push(index);
    }
    broken
}

/// Whether a fault may have taken the older of two grants away: the one with the smaller fence, if a turn of it was asked
/// for before the fault was over and ended after it began. The fences say which grant is older, and which turns are of one grant.
fn excused(windows: &[Window<'_>], one: &Window<'_>, other: &Window<'_>, lossy: &[Fault]) -> bool {
    let (old, new) = if one.fence < other.fence {
        (one, other)
    } else {
        (other, one)
    };
    let of_old = |window: &&Window<'_>| {
        let turn = old.fence.checked_sub(window.fence);
        let same = window.name == old.name && window.process == old.process;
        same && turn.is_some_and(|turn| turn < u64::from(FENCE_BLOCK))
    };
    lossy.iter().any(|(on, off)| {
        let asked_before = |window: &Window<'_>| window.call <= *off && window.end > *on;
        new.start > *on && windows.iter().filter(of_old).any(asked_before)
    })
}

fn windows(records: &[Record]) -> Vec<Window<'_>> {
    let mut sorted: Vec<&Record> = records.iter().collect();
    sorted.sort_by_key(|record| record.t);
    let mut crashed: HashMap<&str, Micros> = HashMap::new();
    let mut taken = Vec::new();
    for record in &sorted {
        match &record.what {
            What::Crashed(process) => drop(crashed.insert(process, record.t)),
            What::Taken { name, fence, since } => taken.push((name.as_str(), *fence, *since)),
            _ => {}
        }
    }
    let mut open: HashMap<(&str, u64), Window<'_>> = HashMap::new();
    let mut done = Vec::new();
    for record in sorted {
        let process = record.who.split('/').next().unwrap_or(&record.who);
        if crashed.get(process).is_some_and(|crash| record.t > *crash) {
            continue;
        }
        let key = (record.who.as_str(), record.op);
        if let What::Call(call) = &record.what {
            let window = Window {
                name: &call.name,
                process,
                weight: call.weight.into(),
                capacity: call.capacity.into(),
                owner: call.owner,
                call: record.t,
                start: Micros::MAX,
                end: crashed.get(process).copied().unwrap_or(Micros::MAX),
                until: Micros::MAX,
                release: Micros::MAX,
                fence: 0,
            };
            done.extend(open.insert(key, window));
        } else if let Some(window) = open.get_mut(&key) {
            window.step(record);
        }
    }
    done.extend(open.into_values());
    done.retain(|window| window.start != Micros::MAX);
    done.iter_mut().for_each(|window| window.close(&taken));
    done.retain(|window| window.start <= window.end);
    done
}

impl Window<'_> {
    fn step(&mut self, record: &Record) {
        match record.what {
            What::Granted { fence, until } => {
                (self.start, self.fence, self.until) = (record.t, fence, until);
            }
            What::Until(until) => self.until = until,
            What::Lost => self.end = self.end.min(record.t),
            What::Release => self.release = record.t,
            // It was held until then, whatever was seen of its deadline.
            What::Released { held: true, .. } => {
                (self.end, self.until) = (self.release, Micros::MAX);
            }
            _ => {}
        }
    }

    fn close(&mut self, taken: &[(&str, u64, Micros)]) {
        self.end = self.end.min(self.until).min(self.release).max(self.start);
        for (name, fence, since) in taken {
            let turn = self.fence.checked_sub(*fence);
            if *name == self.name
                && turn.is_some_and(|turn| turn < u64::from(FENCE_BLOCK))
                && *since < self.end
            {
                self.end = *since;
            }
        }
    }
}

impl Verdict {
    /// Compares with what the second judge counted: where one sees an overlap and the other none, a judge is at fault.
    pub fn compare(&mut self, overlaps: u64) {
        let exclusion = [Promise::Exclusion, Promise::Capacity, Promise::ReadWrite];
        let first: u64 = exclusion
            .iter()
            .filter_map(|promise| self.counts.get(promise))
            .sum();
        if (first > 0) != (overlaps > 0) {
            self.broke(Promise::Agreement, 0, 0, |_| {
                format!("the first judge sees {first} overlaps and the second {overlaps}: a fault of a judge")
            });
        }
    }
}
