//! What is asked of an engine in a run: what it promises under the faults that are made.

use leasehold::engine::{Guarantees, Micros, Verdict};

use super::Plan;
use super::deployment::kept_by;
use super::faults::FaultKind;
use super::locks::TURNS;
use crate::check::Bounds;
use crate::history::{Answer, History, Record, What};

/// What the checker asks, and under which faults of the servers a held lock may be lost.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) bounds: Bounds,
    lossy: Vec<FaultKind>,
    /// The same in words, for the report.
    pub(super) text: Vec<String>,
}

impl Asked {
    pub(super) fn of(plan: &Plan, guarantees: &Guarantees) -> Self {
        let lease = plan.lease.as_micros() as Micros;
        let overtakes = match guarantees.ordered {
            true => u64::from(TURNS) * plan.workers,
            false => u64::MAX,
        };
        let bounds = Bounds {
            overtakes,
            told: lease + 1_000_000,
            stall: lease * 3 + 2_000_000,
            overlap: 0,
        };
        let may_lose = |kind: &&FaultKind| {
            let verdict = kind.promised().map(|fault| guarantees.under(fault));
            let kept = kept_by(&plan.url).contains(kind);
            kind.of_server() && !kept && verdict != Some(Verdict::Kept)
        };
        let lossy: Vec<_> = plan.faults.iter().filter(may_lose).copied().collect();
        let text = in_words(&lossy, &bounds, guarantees);
        Self {
            bounds,
            lossy,
            text,
        }
    }

    /// Ends the held windows where a fault may have taken the lock away. Fences, effects and told losses are asked all the
    /// same.
    pub(super) fn excuse(&self, history: &mut History, records: &[Record]) {
        for (on, off) in self
            .lossy
            .iter()
            .flat_map(|kind| times(records, kind.word()))
        {
            for hold in &mut history.holds {
                let held = hold.answer == Answer::Granted && hold.got <= off && hold.end > on;
                match held {
                    true if hold.got > on => hold.answer = Answer::Unknown,
                    true => hold.end = on,
                    false => {}
                }
            }
        }
    }
}

fn in_words(lossy: &[FaultKind], bounds: &Bounds, guarantees: &Guarantees) -> Vec<String> {
    let mut text = vec![
        format!("{} promises {}", guarantees.engine, guarantees.level),
        "asked throughout: fences in order, effects in the order of fences, re-entrancy".to_owned(),
        format!(
            "asked throughout: a loss told within {} ms, nobody waits {} ms for a free lock, nothing left behind",
            bounds.told / 1_000,
            bounds.stall / 1_000
        ),
        match guarantees.ordered {
            true => format!(
                "asked: nobody in line is overtaken more than {} times",
                bounds.overtakes
            ),
            false => "not asked: order, this engine has none".to_owned(),
        },
    ];
    text.push(match lossy {
        [] => "asked throughout: exclusion, capacity, read/write rules".to_owned(),
        lossy => {
            let words: Vec<_> = lossy.iter().map(|kind| kind.word()).collect();
            format!(
                "asked: exclusion, capacity, read/write rules; a lock that is held when {} begins may be lost, then its fence is refused",
                words.join(" or ")
            )
        }
    });
    text
}

/// From when to when a fault was on, each time.
fn times(records: &[Record], word: &str) -> Vec<(Micros, Micros)> {
    let mut marks: Vec<_> = records
        .iter()
        .filter_map(|record| match &record.what {
            What::Fault { fault, on } if fault == word => Some((record.t, *on)),
            _ => None,
        })
        .collect();
    marks.sort_unstable_by_key(|(t, _)| *t);
    let on = |(at, (t, on)): (usize, &(Micros, bool))| {
        let off = marks.get(at + 1).map_or(Micros::MAX, |(t, _)| *t);
        on.then_some((*t, off))
    };
    marks.iter().enumerate().filter_map(on).collect()
}
