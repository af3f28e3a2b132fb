//! The acts and observations of every process: one JSON line per event, a file per process.
//!
//! Stamps are `CLOCK_BOOTTIME`, the same for every process of the machine. A stamp of an answer is taken after it came, a
//! stamp of a call before it was made: the time in which a lock is known to be held is never longer than it was.

mod assemble;
mod ends;
mod file;

use std::collections::HashMap;

use leasehold::engine::Micros;
use serde::{Deserialize, Serialize};

pub use self::assemble::assemble;
pub use self::file::{Log, read, write};

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// When, in microseconds since boot.
    pub t: Micros,
    /// Which process or task.
    pub who: String,
    /// Which of its requests; 0 where that says nothing.
    #[serde(default)]
    pub op: u64,
    /// The event.
    pub what: What,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A name is asked for.
    Call(Call),
    /// The claim is known to be in the engine's line.
    Queued,
    /// The lock is held.
    Granted {
        /// The fence; 0 where there are none.
        fence: u64,
        /// Valid until then unless renewed.
        until: Micros,
    },
    /// A renewal was seen: valid until then.
    Until(Micros),
    /// A try, or a wait with an end, found no room.
    Busy,
    /// The request failed; `perhaps` it took effect all the same.
    Failed {
        /// Whether it may have.
        perhaps: bool,
    },
    /// The request was given up.
    Cancelled,
    /// Renewals are failing.
    Unsure,
    /// The loss was told.
    Lost,
    /// The release is asked for.
    Release,
    /// The answer to a release: whether the lock was held until then.
    Released {
        /// Whether it was.
        held: bool,
        /// Whether the engine was surely asked; a turn handed to another task of the process does not ask it.
        #[serde(default)]
        asked: bool,
    },
    /// Stamped by the resource: a request came with this fence.
    Effect {
        /// The name of the lock that protects it.
        name: String,
        /// The task that came.
        by: String,
        /// With which fence.
        fence: u64,
        /// Whether the resource took it.
        accepted: bool,
    },
    /// A process was killed; stamped before the signal.
    Crashed(String),
    /// A process was stopped; stamped before the signal.
    Paused(String),
    /// A process goes on; stamped after the signal.
    Resumed(String),
    /// The way from a process (and from those that follow it) to the servers is disturbed; stamped before it is.
    Cut(String),
    /// The way is as before; stamped after it is.
    Mended(String),
    /// A fault that hits every process begins or ends.
    Fault {
        /// Its word.
        fault: String,
        /// Whether it begins.
        on: bool,
    },
    /// A grant was taken away; stamped when that was done.
    Taken {
        /// Of which name.
        name: String,
        /// Its first fence.
        fence: u64,
        /// When it began.
        since: Micros,
    },
    /// Claims left on a name after every process has gone.
    Left {
        /// Which.
        name: String,
        /// How many keys, rows or claims.
        count: u64,
    },
    /// The number in the resource at the end: one for each accepted effect.
    Counted {
        /// Which.
        name: String,
        /// The number.
        count: u64,
    },
}

/// How a name is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The name.
    pub name: String,
    /// How much of the capacity.
    pub weight: u32,
    /// 1 for a mutex, `u32::MAX` for read/write.
    pub capacity: u32,
    /// Whether it waits.
    pub waits: bool,
    /// Whether it is one of several names asked for in one step: it may be held while the next is asked for.
    #[serde(default)]
    pub several: bool,
    /// The lease, in microseconds.
    pub lease: Micros,
    /// The owner that may re-enter; 0 for none.
    #[serde(default)]
    pub owner: u64,
}

/// No such moment.
pub const NEVER: Micros = Micros::MAX;

/// One request, from the call to the end of what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Index into [`History::names`].
    pub name: u32,
    /// Index into [`History::whos`].
    pub who: u32,
    /// The request's number.
    pub op: u64,
    /// How much of the capacity.
    pub weight: u32,
    /// The capacity.
    pub capacity: u32,
    /// The owner that may re-enter; 0 for none.
    pub owner: u64,
    /// The outcome.
    pub answer: Answer,
    /// Whether it waited.
    pub waits: bool,
    /// Whether it was one of several: held from some time after the call.
    pub several: bool,
    /// Whether a release was told that the lock was held until then.
    pub told_held: bool,
    /// Whether that is the engine's answer.
    pub asked: bool,
    /// Whether its process stood still, was cut off or died between the call and the end.
    pub hit: bool,
    /// Before it was asked for.
    pub call: Micros,
    /// When it was known to be in line.
    pub queued: Micros,
    /// After the answer came; when it was given up, if none came.
    pub got: Micros,
    /// The end of the time in which the caller may rightly act.
    pub end: Micros,
    /// From then on it surely holds nothing.
    pub free: Micros,
    /// The fence; 0 for none.
    pub fence: u64,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It held.
    Granted,
    /// It found no room.
    Busy,
    /// It surely had no effect.
    Failed,
    /// Not known: a lost answer, a crash, a cancelled wait, the end of the history.
    Unknown,
}

/// A request to the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effect {
    /// When.
    pub t: Micros,
    /// The name of the lock that protects it.
    pub name: u32,
    /// The task that came.
    pub by: u32,
    /// With which fence.
    pub fence: u64,
    /// Whether it was taken.
    pub accepted: bool,
}

/// A grant that was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Of which name.
    pub name: u32,
    /// Its first fence: that of its first turn.
    pub fence: u64,
    /// When that began.
    pub since: Micros,
    /// When it was done.
    pub t: Micros,
}

/// All events of a run, put together.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The names that were locked.
    pub names: Vec<String>,
    /// All tasks that took part.
    pub whos: Vec<String>,
    /// The requests.
    pub holds: Vec<Hold>,
    /// The effects that the resource stamped.
    pub effects: Vec<Effect>,
    /// The locks that were taken away.
    pub taken: Vec<Taken>,
    /// When a fault hit every process.
    pub faults: Vec<(Micros, Micros)>,
    /// Claims left behind, by name.
    pub left: HashMap<u32, u64>,
    /// The resource's number at the end, by name.
    pub counted: HashMap<u32, u64>,
    /// How many faults there were.
    pub faults_made: u64,
    /// How many of them hit a holder.
    pub faults_held: u64,
    /// How many losses were told.
    pub losses: u64,
}
