//! The schedule of faults: kinds, victims and times, all from the seed.

use std::str::FromStr;
use std::time::Duration;

use leasehold::engine::Fault as Promised;

use super::Plan;
use super::locks::NAMES;
use crate::random::Random;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// `kill -9` of a worker; another one takes its place.
    Kill,
    /// A worker stands still, often past its lease.
    Pause,
    /// A lock is taken away.
    Evict,
    /// Every message of a worker arrives late.
    Delay,
    /// Nothing passes between a worker and the servers, either way.
    Cut,
    /// Nothing of a worker reaches the servers.
    CutToServer,
    /// A worker's requests arrive and take effect; nothing comes back.
    CutToClient,
    /// A worker's connections are reset before an answer arrives.
    Reset,
    /// `kill -9` of a server, of a minority where a majority decides; it comes back.
    ServerKill,
    /// A server stands still.
    ServerPause,
    /// `kill -9` of the server that leads; it comes back.
    LeaderKill,
    /// The master dies before its replicas have heard all, and one of them takes over.
    Failover,
    /// A server's wall clock steps, and some time later steps back.
    ClockStep,
}

use FaultKind::*;

/// Every kind, with its word.
const WORDS: [(&str, FaultKind); 13] = [
    ("kill", Kill),
    ("pause", Pause),
    ("evict", Evict),
    ("delay", Delay),
    ("cut", Cut),
    ("cut-to-server", CutToServer),
    ("cut-to-client", CutToClient),
    ("reset", Reset),
    ("server-kill", ServerKill),
    ("server-pause", ServerPause),
    ("leader-kill", LeaderKill),
    ("failover", Failover),
    ("clock-step", ClockStep),
];

impl FaultKind {
    /// Whether it hits the servers.
    pub const fn of_server(self) -> bool {
        matches!(
            self,
            ServerKill | ServerPause | LeaderKill | Failover | ClockStep
        )
    }

    /// The fault as promises name it. A server that stands still cannot be told from one that is cut off; to take a
    /// lock away is no fault.
    pub(super) const fn promised(self) -> Option<Promised> {
        Some(match self {
            Evict => return None,
            Kill => Promised::HolderCrash,
            Pause => Promised::Pause,
            Delay | Cut | CutToServer | CutToClient | Reset | ServerPause => Promised::Partition,
            ServerKill => Promised::ServerCrash,
            LeaderKill | Failover => Promised::Failover,
            ClockStep => Promised::ClockStep,
        })
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
    /// A draw for other choices: which server, how late, how far.
    pub(super) draw: u64,
}

/// How much longer than its plan a run goes on for kinds of faults that were not made yet.
pub(super) const LONGEST_OVERTIME: Duration = Duration::from_secs(180);

/// All faults of a run, in order, and more should it take longer. Every kind comes before any comes again.
pub(super) fn schedule(plan: &Plan) -> Vec<Fault> {
    let mut random = Random::of(plan.seed, u64::MAX);
    let lease = plan.lease.as_millis() as u64;
    let mut at = Duration::from_millis(300);
    let (mut faults, mut bag) = (Vec::new(), Vec::new());
    while !plan.faults.is_empty() && at < plan.time + LONGEST_OVERTIME {
        if bag.is_empty() {
            bag.clone_from(&plan.faults);
        }
        let kind = bag.swap_remove(random.below(bag.len() as u64) as usize);
        let lasts = match random.one_in(2) {
            true => random.millis(1, lease / 2),
            false => random.millis(lease, lease * 3),
        };
        faults.push(Fault {
            at,
            kind,
            victim: random.below(plan.workers),
            name: random.pick(&NAMES).0,
            lasts,
            draw: random.next(),
        });
        at += random.millis(lease / 10, lease);
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
        assert!(schedule(&plan(7)).len() > 200, "about two in a lease");
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
