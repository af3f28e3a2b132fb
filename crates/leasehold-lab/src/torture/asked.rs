//! The checks of a run: the engine's promises under the faults that are made.

use std::collections::HashMap;

use leasehold::engine::{FENCE_BLOCK, Guarantees, Micros, Verdict};

use super::Plan;
use super::deployment::kept_by;
use super::faults::FaultKind;
use super::locks::TURNS;
use crate::check::Bounds;
use crate::history::{Answer, History, Record, What};

/// The checks, and the faults of the servers under which a held lock may be lost.
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

    /// When faults were on that may cost a lock.
    pub(super) fn lossy_times(&self, records: &[Record]) -> Vec<(Micros, Micros)> {
        let words = |kind: &FaultKind| [kind.word().to_owned(), unasked(*kind)];
        let words = self.lossy.iter().flat_map(words);
        words.flat_map(|word| times(records, &word)).collect()
    }

    /// Ends the held windows where a fault may have taken the lock away. Fences, effects and told losses are asked all
    /// the same. A task that re-enters after the fault, or gets a turn at a grant of its process, gets nothing new: an
    /// answer while the fault was on may be of a grant from before it, and the fences say which later turns are of that
    /// grant.
    pub(super) fn excuse(&self, history: &mut History, records: &[Record]) {
        let processes: Vec<_> = history.whos.iter().map(|who| process(who)).collect();
        for (on, off) in self.lossy_times(records) {
            let mut ended = HashMap::<_, Vec<u64>>::new();
            for hold in &mut history.holds {
                let held = hold.answer == Answer::Granted && hold.got <= off && hold.end > on;
                if !held {
                    continue;
                }
                let by = (hold.name, processes[hold.who as usize]);
                ended.entry(by).or_default().push(hold.fence);
                match hold.got > on {
                    true => hold.answer = Answer::Unknown,
                    false => hold.end = on,
                }
            }
            for hold in history.holds.iter_mut().filter(|hold| hold.got > on) {
                let by = (hold.name, processes[hold.who as usize]);
                let same_grant = |fence: &u64| {
                    let after = hold.fence.checked_sub(*fence);
                    after.is_some_and(|after| after < u64::from(FENCE_BLOCK))
                };
                if ended.get(&by).is_some_and(|of| of.iter().any(same_grant)) {
                    hold.answer = Answer::Unknown;
                }
            }
        }
    }
}

/// Tasks are named after their process.
fn process(who: &str) -> &str {
    who.split('/').next().unwrap_or(who)
}

fn in_words(lossy: &[FaultKind], bounds: &Bounds, guarantees: &Guarantees) -> Vec<String> {
    let mut text = vec![
        format!("{} promises {}", guarantees.engine, guarantees.level),
        "asked throughout: fences in order, effects in the order of fences, re-entrancy".to_owned(),
        format!(
            "asked throughout: a loss told within {} ms, no request waits {} ms for a free lock, nothing left behind",
            bounds.told / 1_000,
            bounds.stall / 1_000
        ),
        match guarantees.ordered {
            true => format!(
                "asked: no request in line is overtaken more than {} times",
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
    use crate::check::{Demands, Promise, judge, simple};
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
        assert_eq!(lossy("postgres", "postgres://u@h/d"), [ClockStep]);
        assert_eq!(lossy("mariadb", "mysql://u@h/d"), [ClockStep]);
        for (engine, url) in [
            ("file", "file:"),
            ("sqlite", "sqlite:x"),
            ("zookeeper", "zookeeper://h"),
            ("zookeeper-ensemble", "zookeeper://h"),
            ("etcd", "etcd://h"),
            ("etcd-cluster", "etcd://h"),
            ("consul", "consul://h"),
            ("consul-three", "consul://h"),
        ] {
            assert_eq!(lossy(engine, url), [], "{engine}");
        }
    }

    fn record(t: Micros, who: &str, what: What) -> Record {
        let who = who.to_owned();
        Record {
            t,
            who,
            op: 1,
            what,
        }
    }

    /// Asks at the first of these times, holds from the second to the third.
    fn hold(who: &str, [asks, gets, ends]: [Micros; 3], fence: u64, owner: u64) -> [Record; 3] {
        let call = Call {
            name: "x".into(),
            weight: 1,
            capacity: 1,
            waits: true,
            several: false,
            lease: 1_000,
            owner,
        };
        [
            record(asks, who, What::Call(call)),
            record(gets, who, What::Granted { fence, until: 999 }),
            record(ends, who, What::Release),
        ]
    }

    /// The promises that these break if a fault comes from 30 to 40.
    fn broken(fault: &str, holds: &[[Record; 3]]) -> Vec<Promise> {
        let fault = |on| What::Fault {
            fault: fault.into(),
            on,
        };
        let mut records = holds.concat();
        records.extend([
            record(30, "lab", fault(true)),
            record(40, "lab", fault(false)),
        ]);
        let asked = asked("redis", "redis://h");
        let mut history = assemble(records.clone()).unwrap();
        asked.excuse(&mut history, &records);
        let mut verdict = judge(&history, &asked.bounds, &Demands::default());
        verdict.compare(simple::overlaps(&records, &asked.lossy_times(&records)));
        verdict.promises()
    }

    #[test]
    fn a_lost_lock_is_excused_and_its_fence_is_not() {
        let two = |fault, fence| {
            let first = hold("a/0", [10, 20, 90], 5, 0);
            broken(fault, &[first, hold("b/0", [50, 60, 70], fence, 0)])
        };
        assert_eq!(two("server-kill", 6), []);
        assert_eq!(two("server-kill unasked", 6), []);
        assert!(two("server-kill", 4).contains(&Promise::FenceOrder));
        assert_eq!(two("server-pause", 6), [Promise::Exclusion]);
    }

    #[test]
    fn re_entry_after_the_fault_holds_the_same_grant() {
        let first = hold("a/0", [10, 20, 90], 5, 7);
        let again = hold("a/1", [50, 60, 70], 5, 7);
        assert_eq!(broken("server-kill", &[first, again]), []);
    }

    #[test]
    fn a_turn_after_the_fault_at_a_grant_from_before_is_nothing_new() {
        let late = |who, fence| {
            let before = hold("a/0", [10, 20, 55], 5, 0);
            let from_the_empty_server = hold("b/0", [11, 60, 80], 1_000, 0);
            let holds = [
                before,
                from_the_empty_server,
                hold(who, [12, 65, 70], fence, 0),
            ];
            broken("server-kill", &holds)
        };
        assert_eq!(late("a/1", 6), []);
        assert!(late("a/1", 5 + 256).contains(&Promise::Exclusion));
        assert!(late("c/0", 6).contains(&Promise::Exclusion));
    }

    /// Its yes was on its way when the server was killed, and was told just after the mark; its tasks passed the grant on.
    #[test]
    fn a_grant_told_just_after_the_mark_is_of_before_it() {
        let passed_on = |fence| {
            broken(
                "server-kill",
                &[
                    hold("a/0", [10, 34, 45], 5, 0),
                    hold("a/1", [12, 45, 55], 6, 0),
                    hold("a/2", [44, 55, 75], fence, 0),
                    hold("b/0", [11, 60, 80], 1_000, 0),
                ],
            )
        };
        assert_eq!(passed_on(7), []);
        assert_eq!(passed_on(5 + 600), [Promise::Exclusion]);
    }
}
