//! A small program, drawn from a seed.

use std::time::Duration;

use super::chance::Point;

/// In which order things that could happen side by side happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each takes a time of its own.
    Random,
    /// Each actor has a speed that it keeps, but for so many moments at which one stands still.
    Priorities(u32),
    /// Only what happens at this point is late, and always.
    Late(Point),
}

/// The kind of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One holder.
    Mutex,
    /// Many readers or one writer.
    ReadWrite,
    /// So many permits.
    Permits(u32),
}

/// Where the program runs.
#[derive(Debug, Clone, PartialEq)]
pub struct World {
    /// The lease of most locks, and the longest.
    pub lease: Duration,
    /// How long a message takes there and back.
    pub trip: Duration,
    /// The longest that a message or a task is late beyond that.
    pub longest: Duration,
    /// The tasks that are late, and when.
    pub order: Order,
    /// Whether calls and answers are lost.
    pub faults: bool,
    /// Whether guards are asked for their state at every step. Otherwise their tokens alone are looked at.
    pub loud: bool,
    /// How much faster the engine's clock runs, in millionths.
    pub drift: i32,
    /// The names.
    pub names: Vec<Kind>,
    /// How many clients there are.
    pub clients: usize,
}

impl World {
    /// The lease on these terms.
    pub fn lease_of(&self, terms: &Terms) -> Duration {
        self.lease * terms.twentieths / 20
    }
}

/// How long a caller waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Until it is granted. Bounded all the same while the task holds something.
    Wait,
    /// Not at all.
    Try,
    /// So long, with the call that says so.
    Within(Duration),
    /// So long; then the future is dropped.
    DropAfter(Duration),
}

/// How much of a name is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// A mutex, or all of a read/write lock, or one permit.
    Whole,
    /// A read lock; otherwise as `Whole`.
    Read,
    /// So many permits; otherwise as `Whole`.
    Many(u32),
    /// Two mutexes at once, this one and the next; otherwise as `Whole`.
    Both,
}

/// The scope of re-entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// No one.
    No,
    /// The task.
    Task,
    /// One of the client's owners.
    Owner(usize),
}

/// On which terms a name is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The part of the usual lease.
    pub twentieths: u32,
    /// Whether it is renewed.
    pub keep_alive: bool,
    /// How long others are kept out at least.
    pub min_hold: Duration,
    /// How long it is kept for this client.
    pub linger: Duration,
    /// Past the turns of the process.
    pub strict: bool,
    /// The scope of re-entry.
    pub again: Again,
}

/// One step of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Asks for a name.
    Take(usize, Want, Patience, Terms),
    /// Gives the oldest guard back and waits for the answer.
    Release,
    /// Drops the newest guard.
    Drop,
    /// Begins to give the newest guard back, and drops that after this time.
    DropRelease(Duration),
    /// Goes on as a reader with the newest guard, if it is a writer's.
    Downgrade,
    /// Does nothing for a while.
    Rest(Duration),
    /// Waits until this task has begun this step of its own; not for ever.
    Meet(usize, usize),
    /// Takes a name away from its holders.
    Evict(usize),
    /// Asks the holders of a name to give it up.
    Ask(usize),
    /// Shuts the client down.
    Shutdown(Duration),
}

/// One task of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The client.
    pub client: usize,
    /// Its steps.
    pub steps: Vec<Step>,
}

/// An event that a client did not cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// No call of the client gets through: it fails after a while, or never answers.
    Outage(bool),
    /// No heartbeat of this name gets through.
    Sick(usize),
    /// The engine says that it cannot be heard.
    Unsure,
}

/// An event: the client, the kind, from when, how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Which client.
    pub client: usize,
    /// What.
    pub fate: Fate,
    /// After the start.
    pub from: Duration,
    /// For so long.
    pub length: Duration,
}

/// All of a run but its choices.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Where it runs.
    pub world: World,
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The events that hit them.
    pub hits: Vec<Hit>,
}

/// Turns that a client takes while another waits.
pub const TURNS: u32 = 3;

/// Owners that the tasks of one client share.
pub const OWNERS: usize = 2;

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?}", self.world)?;
        for (index, task) in self.tasks.iter().enumerate() {
            if task.steps.is_empty() {
                continue;
            }
            writeln!(f, "task {index} of client {}:", task.client)?;
            for step in &task.steps {
                writeln!(f, "    {step:?}")?;
            }
        }
        self.hits.iter().try_for_each(|hit| writeln!(f, "{hit:?}"))
    }
}
