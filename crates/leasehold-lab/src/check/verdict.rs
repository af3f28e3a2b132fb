//! The checker's verdict.

use std::collections::BTreeMap;
use std::fmt;

use leasehold::engine::Micros;
use serde::Serialize;

use super::Demands;
use crate::history::{Answer, History, Hold};

/// The promises that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// One holder of a mutex at a time.
    Exclusion,
    /// Never more permits than there are.
    Capacity,
    /// A writer is alone.
    ReadWrite,
    /// Held windows overlap by no more than the engine's bound.
    BoundedOverlap,
    /// A request that was answered before another began has the smaller fence; no fence twice.
    FenceOrder,
    /// Fences grow in the order in which the lock was held.
    FenceWindow,
    /// A request that re-enters keeps the fence.
    Reentrancy,
    /// The resource takes effects in the order of fences and loses none.
    EffectOrder,
    /// A loss is told within its bound.
    ToldLoss,
    /// No request in line is overtaken too often.
    Overtaking,
    /// No request waits for a lock that is free, and nothing is left behind.
    Progress,
    /// "Busy" and "held until then" are true.
    ToldOutcome,
    /// The history contains what it is meant to prove something about.
    NotVacuous,
    /// Two judges see the same: no promise of a lock, but one of the lab.
    Agreement,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusion => "exclusion",
            Self::Capacity => "capacity",
            Self::ReadWrite => "read/write",
            Self::BoundedOverlap => "bounded overlap",
            Self::FenceOrder => "fence order",
            Self::FenceWindow => "fence order by window",
            Self::Reentrancy => "re-entrancy",
            Self::EffectOrder => "effects in fence order",
            Self::ToldLoss => "told loss",
            Self::Overtaking => "bounded overtaking",
            Self::Progress => "progress",
            Self::ToldOutcome => "told outcome",
            Self::NotVacuous => "not vacuous",
            Self::Agreement => "agreement of the judges",
        })
    }
}

/// One broken promise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// Of which name.
    pub name: String,
    /// When it shows.
    pub t: Micros,
    /// The event, in words.
    pub text: String,
}

/// Counts of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    /// Requests that held.
    pub holds: u64,
    /// Holds that had to wait for another hold.
    pub contended: u64,
    /// Requests that found no room.
    pub busy: u64,
    /// Requests without a known outcome.
    pub unknown: u64,
    /// Faults.
    pub faults: u64,
    /// Faults that hit a holder.
    pub faults_held: u64,
    /// Losses told.
    pub losses: u64,
    /// Effects the resource took.
    pub accepted: u64,
    /// Effects the resource refused.
    pub refused: u64,
    /// The most often that a request in line was overtaken.
    pub overtakes: u64,
    /// The longest wait, in microseconds.
    pub longest_wait: Micros,
}

/// The verdict on a history.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Counts of the history.
    pub stats: Stats,
    /// How often each promise was broken.
    pub counts: BTreeMap<Promise, u64>,
    /// The first of each.
    pub broken: Vec<Broken>,
    #[serde(skip)]
    names: Vec<String>,
    #[serde(skip)]
    whos: Vec<String>,
}

/// How many of each broken promise are kept.
const KEPT: u64 = 5;

impl Verdict {
    pub(super) fn new(history: &History) -> Self {
        let mut stats = Stats {
            faults: history.faults_made,
            faults_held: history.faults_held,
            losses: history.losses,
            ..Stats::default()
        };
        for hold in &history.holds {
            match hold.answer {
                Answer::Granted => {
                    stats.holds += 1;
                    stats.longest_wait = stats.longest_wait.max(hold.got - hold.call);
                }
                Answer::Busy => stats.busy += 1,
                Answer::Failed => {}
                Answer::Unknown => stats.unknown += 1,
            }
        }
        Self {
            stats,
            counts: BTreeMap::new(),
            broken: Vec::new(),
            names: history.names.clone(),
            whos: history.whos.clone(),
        }
    }

    /// Whether every promise was kept.
    pub fn is_good(&self) -> bool {
        self.counts.is_empty()
    }

    /// How often a promise was broken.
    pub fn count(&self, promise: Promise) -> u64 {
        self.counts.get(&promise).copied().unwrap_or(0)
    }

    /// The broken promises.
    pub fn promises(&self) -> Vec<Promise> {
        self.counts.keys().copied().collect()
    }

    pub(super) fn broke(
        &mut self,
        promise: Promise,
        name: u32,
        t: Micros,
        text: impl FnOnce(&Self) -> String,
    ) {
        let count = self.counts.entry(promise).or_default();
        *count += 1;
        if *count <= KEPT {
            let text = text(self);
            let name = self.names.get(name as usize).cloned().unwrap_or_default();
            self.broken.push(Broken {
                promise,
                name,
                t,
                text,
            });
        }
    }

    /// A hold in words.
    pub(super) fn say(&self, hold: &Hold) -> String {
        let who = self.whos.get(hold.who as usize).map_or("?", String::as_str);
        let fence = match hold.fence {
            0 => String::new(),
            fence => format!(" fence {fence}"),
        };
        format!("{who}#{}{fence} [{}..{}]", hold.op, hold.got, hold.end)
    }

    pub(super) fn demand(&mut self, demands: &Demands) {
        let Stats {
            contended,
            faults_held,
            refused,
            ..
        } = self.stats;
        let pairs = [
            ("holds that had to wait", contended, demands.contended),
            (
                "faults that hit a held lock",
                faults_held,
                demands.faults_held,
            ),
            ("stale effects refused", refused, demands.refused),
        ];
        for (what, is, wanted) in pairs {
            if is < wanted {
                let text = format!("{is} {what}, at least {wanted} are needed to prove anything");
                self.broke(Promise::NotVacuous, u32::MAX, 0, |_| text);
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.stats;
        writeln!(
            f,
            "holds {}  contended {}  busy {}  unknown {}  longest wait {} ms  overtaken at most {}",
            s.holds,
            s.contended,
            s.busy,
            s.unknown,
            s.longest_wait / 1_000,
            s.overtakes
        )?;
        writeln!(
            f,
            "faults {}  on a held lock {}  losses told {}  effects accepted {}  refused {}",
            s.faults, s.faults_held, s.losses, s.accepted, s.refused
        )?;
        for broken in &self.broken {
            let of = if broken.name.is_empty() {
                String::new()
            } else {
                format!(" of {}", broken.name)
            };
            writeln!(
                f,
                "broken: {}{of} at {}: {}",
                broken.promise, broken.t, broken.text
            )?;
        }
        match self.counts.is_empty() {
            true => write!(f, "verdict: every promise was kept"),
            false => {
                let counts: Vec<_> = self
                    .counts
                    .iter()
                    .map(|(p, n)| format!("{p} ×{n}"))
                    .collect();
                write!(f, "verdict: BROKEN: {}", counts.join(", "))
            }
        }
    }
}
