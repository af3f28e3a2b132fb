//! The schedule of faults: what hits whom when, all from the seed.

use std::str::FromStr;
use std::time::Duration;

use super::Plan;
use super::hand::NAMES;
use crate::random::Random;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// `kill -9` of a worker; another one takes its place.
    Kill,
    /// A worker stands still, often past its lease.
    Pause,
    /// A lock is taken away.
    Evict,
    /// `kill -9` of the server; it comes back.
    ServerKill,
    /// The server stands still.
    ServerPause,
}

/// Every kind, with its word.
const WORDS: [(&str, FaultKind); 5] = [
    ("kill", FaultKind::Kill),
    ("pause", FaultKind::Pause),
    ("evict", FaultKind::Evict),
    ("server-kill", FaultKind::ServerKill),
    ("server-pause", FaultKind::ServerPause),
];

impl FaultKind {
    /// Whether it needs a server of ours.
    pub const fn of_server(self) -> bool {
        matches!(self, Self::ServerKill | Self::ServerPause)
    }

    /// Its word.
    pub fn word(self) -> &'static str {
        WORDS
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(word, _)| word)
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = WORDS.iter().find(|(known, _)| *known == word);
        known.map(|(_, kind)| *kind).ok_or_else(|| {
            let words: Vec<_> = WORDS.iter().map(|(word, _)| *word).collect();
            format!("no such fault; known: {}", words.join(", "))
        })
    }
}

/// One fault of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    /// From the start of the run.
    pub(super) at: Duration,
    pub(super) kind: FaultKind,
    /// Which worker.
    pub(super) victim: u64,
    /// Which name.
    pub(super) name: &'static str,
    /// For how long.
    pub(super) lasts: Duration,
}

/// All faults of a run, in order.
pub(super) fn schedule(plan: &Plan) -> Vec<Fault> {
    let mut random = Random::of(plan.seed, u64::MAX);
    let lease = plan.lease.as_millis() as u64;
    let mut at = Duration::from_millis(300);
    let mut faults = Vec::new();
    while !plan.faults.is_empty() && at + plan.lease * 3 < plan.time {
        let kind = *random.pick(&plan.faults);
        let lasts = match random.one_in(3) {
            true => random.millis(1, lease / 2),
            false => random.millis(lease, lease * 3),
        };
        faults.push(Fault {
            at,
            kind,
            victim: random.below(plan.workers),
            name: random.pick(&NAMES).0,
            lasts,
        });
        at += random.millis(30, 250);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replays() {
        let plan = |seed| Plan {
            url: "file:".into(),
            time: Duration::from_secs(60),
            seed,
            workers: 4,
            lease: Duration::from_millis(300),
            rest: Duration::from_millis(20),
            faults: vec![FaultKind::Kill, FaultKind::Pause, FaultKind::Evict],
            program: "x".into(),
            into: "y".into(),
            progress: false,
        };
        assert_eq!(schedule(&plan(7)), schedule(&plan(7)));
        assert_ne!(schedule(&plan(7)), schedule(&plan(8)));
        assert!(schedule(&plan(7)).len() > 200);
    }

    #[test]
    fn words_are_read_back() {
        for (word, kind) in WORDS {
            assert_eq!(word.parse(), Ok(kind));
            assert_eq!(kind.word(), word);
        }
        assert!("earthquake".parse::<FaultKind>().is_err());
    }
}
