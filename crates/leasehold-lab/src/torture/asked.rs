//! What is asked of an engine in a run: what it promises under the faults that are made.

use std::collections::HashSet;

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
    /// same. Who re-enters what it still has after the fault gets nothing new.
    pub(super) fn excuse(&self, history: &mut History, records: &[Record]) {
        let words = |kind: &FaultKind| [kind.word().to_owned(), unasked(*kind)];
        let words = self.lossy.iter().flat_map(words);
        for (on, off) in words.flat_map(|word| times(records, &word)) {
            let mut ended = HashSet::new();
            for hold in &mut history.holds {
                let held = hold.answer == Answer::Granted && hold.got <= off && hold.end > on;
                match held {
                    true if hold.got > on => hold.answer = Answer::Unknown,
                    true => {
                        hold.end = on;
                        let _ = ended.insert((hold.name, hold.owner, hold.fence));
                    }
                    false => {}
                }
            }
            for hold in &mut history.holds {
                let again = ended.contains(&(hold.name, hold.owner, hold.fence));
                if hold.owner != 0 && again && hold.got > on {
                    hold.answer = Answer::Unknown;
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

/// The word of a fault that the servers made themselves. It may begin before one of ours is over.
pub(super) fn unasked(kind: FaultKind) -> String {
    format!("{} unasked", kind.word())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Demands, Promise, judge};
    use crate::history::{Call, assemble};

    fn plan(url: &str) -> Plan {
        Plan {
            url: url.into(),
            time: std::time::Duration::from_secs(1),
            seed: 1,
            workers: 4,
            lease: std::time::Duration::from_millis(500),
            rest: std::time::Duration::from_millis(50),
            faults: super::super::deployment::faults_of(url).to_vec(),
            program: "x".into(),
            into: "y".into(),
            progress: false,
        }
    }

    fn asked(engine: &str, url: &str) -> Asked {
        Asked::of(&plan(engine), &leasehold::guarantees(url).unwrap())
    }

    #[test]
    fn the_engine_decides_which_faults_may_cost_a_lock() {
        use FaultKind::*;
        let lossy = |engine, url| asked(engine, url).lossy;
        assert_eq!(lossy("redis", "redis://h"), [ServerKill]);
        assert_eq!(lossy("redis-durable", "redis://h"), [ClockStep]);
        assert_eq!(
            lossy("redis-sentinel", "redis+sentinel://h/main"),
            [Failover]
        );
        assert_eq!(lossy("redlock", "redlock://a,b,c"), [ClockStep]);
        assert_eq!(lossy("postgres", "postgres://h/d"), [ClockStep]);
        assert_eq!(lossy("mariadb", "mysql://h/d"), [ClockStep]);
        for (engine, url) in [
            ("file", "file:"),
            ("sqlite", "sqlite:x"),
            ("zookeeper", "zookeeper://h"),
            ("zookeeper-ensemble", "zookeeper://h"),
        ] {
            assert_eq!(lossy(engine, url), [], "{engine}");
        }
    }

    /// Two hold at a time; a fault comes while the first holds.
    fn two(fault: &str, second_fence: u64) -> Vec<Record> {
        let record = |t, who: &str, what| Record {
            t,
            who: who.to_owned(),
            op: 1,
            what,
        };
        let call = || {
            What::Call(Call {
                name: "x".into(),
                weight: 1,
                capacity: 1,
                waits: true,
                several: false,
                lease: 1_000,
                owner: 0,
            })
        };
        let granted = |fence| What::Granted { fence, until: 999 };
        let mark = |on| What::Fault {
            fault: fault.into(),
            on,
        };
        vec![
            record(10, "a", call()),
            record(20, "a", granted(5)),
            record(30, "lab", mark(true)),
            record(40, "lab", mark(false)),
            record(50, "b", call()),
            record(60, "b", granted(second_fence)),
            record(70, "b", What::Release),
            record(90, "a", What::Lost),
        ]
    }

    fn verdict(fault: &str, second_fence: u64) -> Vec<Promise> {
        let asked = asked("redis", "redis://h");
        let records = two(fault, second_fence);
        let mut history = assemble(records.clone()).unwrap();
        asked.excuse(&mut history, &records);
        judge(&history, &asked.bounds, &Demands::default()).promises()
    }

    #[test]
    fn who_re_enters_after_the_fault_holds_what_it_held() {
        let mut records = two("server-kill", 5);
        records.retain(|record| record.what != What::Lost);
        for record in &mut records {
            if let What::Call(call) = &mut record.what {
                call.owner = 7;
            }
        }
        let asked = asked("redis", "redis://h");
        let mut history = assemble(records.clone()).unwrap();
        asked.excuse(&mut history, &records);
        let verdict = judge(&history, &asked.bounds, &Demands::default());
        assert_eq!(verdict.promises(), []);
    }

    #[test]
    fn a_lost_lock_is_excused_and_its_fence_is_not() {
        assert_eq!(verdict("server-kill", 6), []);
        assert_eq!(verdict("server-kill unasked", 6), []);
        assert!(verdict("server-kill", 4).contains(&Promise::FenceOrder));
        assert_eq!(verdict("server-pause", 6), [Promise::Exclusion]);
    }
}
