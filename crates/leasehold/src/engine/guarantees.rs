//! The guarantees of an engine, as data.

use std::fmt;

use crate::error::{Error, ErrorKind, Result, Step};

/// How far exclusion can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Level {
    /// Best effort: for saving work, not for correctness.
    L0,
    /// The times during which holders may act never overlap, while the stated bounds hold.
    L1,
    /// L1, and fences only grow: a resource that checks them accepts effects in lock order, whatever happens.
    L2,
    /// The effect commits together with the lock: exclusion of effects, unconditionally.
    L3,
}

/// The faults that guarantees speak of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The holder dies.
    HolderCrash,
    /// The holder stands still for longer than its lease.
    Pause,
    /// A wall clock steps.
    ClockStep,
    /// The engine's server (for `file`: the machine) dies and comes back.
    ServerCrash,
    /// Another server takes over.
    Failover,
    /// The network is cut.
    Partition,
}

impl Fault {
    /// Every fault, in the order of the table and of the variants.
    pub const ALL: [Self; 6] = [
        Self::HolderCrash,
        Self::Pause,
        Self::ClockStep,
        Self::ServerCrash,
        Self::Failover,
        Self::Partition,
    ];
}

/// The outcome under a fault, for a holder that looks at its guard before each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Exclusion is kept.
    Kept,
    /// Exclusion can break; a resource that checks fences refuses the late one.
    Fenced,
    /// Exclusion can break and a fence may repeat.
    Broken,
    /// The fault cannot happen here.
    Absent,
}

/// The verdict of an engine per fault, and what it can do.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::engine::{Fault, Level, Verdict};
///
/// let guarantees = leasehold::connect("memory:").await?.guarantees();
/// assert_eq!(guarantees.level, Level::L2);
/// assert_eq!(guarantees.under(Fault::Partition), Verdict::Absent);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// The engine, as people call this deployment of it.
    pub engine: &'static str,
    /// How far exclusion can be trusted.
    pub level: Level,
    /// The processes that are excluded, in one sentence.
    pub scope: &'static str,
    /// How soon a dead holder's lock passes on.
    pub dead_holder: &'static str,
    /// Where fences come from, where that needs saying.
    pub fences: &'static str,
    /// Whether claims can share a name: readers, permits. Otherwise `claim` refuses them.
    pub shared: bool,
    /// Whether there are read/write locks, where claims can share a name.
    pub readers: bool,
    /// Whether sessions are served in the order in which they came.
    pub ordered: bool,
    /// In the order of [`Fault::ALL`].
    verdicts: [Verdict; Fault::ALL.len()],
}

impl Guarantees {
    /// Promises nothing yet: under a fault that is given no [`verdict`](Self::verdict), exclusion is broken.
    ///
    /// ```
    /// use leasehold::engine::{Fault, Guarantees, Level, Verdict};
    ///
    /// let guarantees = Guarantees::new("mine", Level::L1)
    ///     .verdict(Verdict::Kept, [Fault::HolderCrash, Fault::ClockStep])
    ///     .verdict(Verdict::Fenced, [Fault::Pause]);
    /// assert_eq!(guarantees.under(Fault::Pause), Verdict::Fenced);
    /// assert_eq!(guarantees.under(Fault::Failover), Verdict::Broken);
    /// ```
    pub const fn new(engine: &'static str, level: Level) -> Self {
        Self {
            engine,
            level,
            scope: "",
            dead_holder: "",
            fences: "",
            shared: true,
            readers: true,
            ordered: true,
            verdicts: [Verdict::Broken; Fault::ALL.len()],
        }
    }

    /// Sets the verdict under these faults.
    #[must_use]
    pub const fn verdict<const N: usize>(mut self, verdict: Verdict, faults: [Fault; N]) -> Self {
        let mut at = 0;
        while at < N {
            self.verdicts[faults[at] as usize] = verdict;
            at += 1;
        }
        self
    }

    /// Sets the processes that are excluded.
    #[must_use]
    pub const fn scope(mut self, scope: &'static str) -> Self {
        self.scope = scope;
        self
    }

    /// Says how soon a dead holder's lock passes on.
    #[must_use]
    pub const fn dead_holder(mut self, when: &'static str) -> Self {
        self.dead_holder = when;
        self
    }

    /// Says where fences come from.
    #[must_use]
    pub const fn fences(mut self, source: &'static str) -> Self {
        self.fences = source;
        self
    }

    /// Says that there are no readers and no permits.
    #[must_use]
    pub const fn mutex_only(mut self) -> Self {
        self.shared = false;
        self.readers = false;
        self
    }

    /// Says that there are permits, but no read/write locks.
    #[must_use]
    pub const fn without_readers(mut self) -> Self {
        self.readers = false;
        self
    }

    /// Says that waiters are served in any order, not first come, first served.
    #[must_use]
    pub const fn unordered(mut self) -> Self {
        self.ordered = false;
        self
    }

    /// The verdict under a fault.
    pub fn under(&self, fault: Fault) -> Verdict {
        self.verdicts[fault as usize]
    }

    /// Refuses if the level is not reached.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with the level there is.
    pub fn require(&self, level: Level) -> Result<()> {
        if self.level >= level {
            return Ok(());
        }
        let what = format!(
            "{level} is required and this deployment gives {}: {}",
            self.level, self.scope
        );
        Err(Error::new(ErrorKind::Unsupported, Step::Connect, what).on(self.engine))
    }

    /// The header of the table in the documentation.
    pub fn table_header() -> String {
        let faults: Vec<_> = Fault::ALL.iter().map(Fault::to_string).collect();
        format!(
            "| engine | {} | level | kinds | order | excludes | a dead holder's lock passes on |\n|{}",
            faults.join(" | "),
            "---|".repeat(faults.len() + 6)
        )
    }

    /// This engine's row of the table in the documentation.
    pub fn table_row(&self) -> String {
        let verdicts: Vec<_> = self.verdicts.iter().map(Verdict::to_string).collect();
        format!(
            "| {} | {} | {:?} | {} | {} | {} | {} |",
            self.engine,
            verdicts.join(" | "),
            self.level,
            match (self.shared, self.readers) {
                (true, true) => "all",
                (true, false) => "mutex, semaphore",
                (false, _) => "mutex",
            },
            if self.ordered {
                "first come, first served"
            } else {
                "any"
            },
            self.scope,
            self.dead_holder
        )
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::L0 => "L0 (best effort)",
            Self::L1 => "L1 (exclusion within bounds)",
            Self::L2 => "L2 (exclusion within bounds, growing fences)",
            Self::L3 => "L3 (effect in the same transaction)",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HolderCrash => "holder crash",
            Self::Pause => "pause > lease",
            Self::ClockStep => "clock step",
            Self::ServerCrash => "server crash",
            Self::Failover => "failover",
            Self::Partition => "partition",
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "ok",
            Self::Fenced => "fence",
            Self::Broken => "**broken**",
            Self::Absent => "–",
        })
    }
}
