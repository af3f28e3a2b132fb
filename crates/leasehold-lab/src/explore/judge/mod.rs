//! A simple judge beside the run: which guards say right now that they are valid, and what each client was told.
//!
//! It knows nothing of lines, tables or turns. It judges, by promise:
//! P1–P3 no more is valid than fits, at every step · P4 no grant passes a claim that waits before it · P5, P16 none
//! waits for a name that is free · P6 fences grow · P7 a
//! loss is told, and has a cause · P8 a release tells the truth · P9, P11, P22 nothing is left at the end · P10 nothing
//! panics · P12 a try on a free name is granted, and an outage is no "busy" · P14 a guard told of its end is lost ·
//! P15 turns are bounded · P17 an owner re-enters with its fence, and no other does · P18 all of several names, or
//! none · P19 a shutdown ends everything in its time · P21 fixed leases and minimum holds · P24 a writer that went on
//! as a reader writes no more · P20 a look at the engine shows what is valid · P23 a call that is repeated says the same
//! · P25 a holder that was asked is told, and its grant serves no other. That two names share nothing (P13) shows as P5
//! or P12: a name that is free is waited for, or busy.

mod asks;
mod begun;
mod ends;
mod facts;
mod guards;
mod places;
mod waits;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold::engine::{ClaimId, Clock, Micros, RW_CAPACITY};
use leasehold::{Guard, GuardState as Validity, MultiGuard, WriteGuard};

pub use self::asks::{Ask, AskId, End};
use self::facts::Fact;
use super::program::{Again, Fate, Kind, Program, Terms};

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Its number.
    pub promise: &'static str,
    /// The observation.
    pub what: String,
    /// When, after the start.
    pub at: Duration,
}

impl Broken {
    /// The promise and what was seen, without numbers: the same for all programs with the same bug, or nearly so.
    pub fn family(&self) -> String {
        let words = self
            .what
            .split(' ')
            .filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
        format!("{} {}", self.promise, words.collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:?}: {}", self.promise, self.at, self.what)
    }
}

/// A lock that a task took.
#[derive(Debug)]
pub enum Taken {
    /// A guard.
    One(Guard),
    /// One that can go on as a reader.
    Writer(WriteGuard),
    /// Several.
    Many(MultiGuard),
}

impl Taken {
    /// The guards in it.
    pub fn guards(&self) -> Vec<&Guard> {
        match self {
            Self::One(guard) => vec![guard],
            Self::Writer(writer) => vec![writer],
            Self::Many(many) => many.guards().iter().collect(),
        }
    }
}

/// The owner that may re-enter: a task, or an owner of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A task of the program.
    Task(usize),
    /// A client's owner.
    Owner(usize, usize),
}

impl Who {
    /// The owner of a request on these terms.
    pub fn of(client: usize, task: usize, terms: &Terms) -> Self {
        match terms.again {
            Again::Owner(owner) => Self::Owner(client, owner),
            Again::No | Again::Task => Self::Task(task),
        }
    }
}

/// A guard that a task has.
#[derive(Debug)]
struct Hold {
    client: usize,
    who: Who,
    name: usize,
    weight: u32,
    writes: bool,
    fence: u64,
    terms: Terms,
    since: Micros,
    taken: Weak<Taken>,
    index: usize,
    told: Told,
    downgraded: bool,
    /// Whether its loss was seen.
    lost: bool,
    id: u64,
    /// The call that got it.
    asked: AskId,
}

/// Whether a guard's token says that it is lost.
struct Told(Box<dyn Fn() -> bool + Send>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (self.0)())
    }
}

/// The state of a name.
#[derive(Debug, Default)]
struct Line {
    kind: Option<Kind>,
    /// The largest fence of a turn that ended, and of one that had all.
    ended: u64,
    ended_whole: u64,
    /// The largest fence told.
    told: u64,
    /// Counts what others began.
    stamp: u64,
    /// Until then a claim may be in the way of one that waits.
    busy: Micros,
    /// Until then a try of this client may be busy.
    cool: Vec<Micros>,
    /// When a client last held it.
    used: Vec<Micros>,
    /// When a task of a client last lost its patience.
    left: Vec<Micros>,
    /// Minimum holds: until when, by which client, under which fence, of how much.
    kept: Vec<(Micros, usize, u64, u32)>,
    /// The last turn: its fence, its owner, and the call that got it.
    last: Option<(u64, usize, Who, Terms, AskId)>,
}

impl Line {
    fn turn_ended(&mut self, fence: u64, weight: u32) {
        self.ended = self.ended.max(fence);
        if weight == capacity(self.kind) {
            self.ended_whole = self.ended_whole.max(fence);
        }
    }

    /// A later turn's fence is larger than this. Readers share the fences of a grant and do not order each other.
    fn ended(&self, reads: bool) -> u64 {
        match (self.kind, reads) {
            (Some(Kind::ReadWrite), true) => self.ended_whole,
            _ => self.ended,
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Life {
    closing: Option<Micros>,
    closed: bool,
    patience: Option<Duration>,
    tasks: usize,
}

#[derive(Debug)]
struct State {
    program: Program,
    clock: Clock,
    start: Micros,
    order: u64,
    facts: HashMap<ClaimId, Fact>,
    holds: Vec<Hold>,
    next: u64,
    asks: Vec<Ask>,
    lines: Vec<Line>,
    lives: Vec<Life>,
    evictions: u64,
    granted: u64,
    lost: u64,
    broken: Option<Broken>,
}

/// The judge of one run. Clones are the same.
#[derive(Debug, Clone)]
pub struct Judge(Arc<Mutex<State>>);

impl Judge {
    /// Judges this program.
    pub fn new(program: &Program, clock: &Clock) -> Self {
        let clients = program.world.clients;
        let line = |kind: &Kind| Line {
            kind: Some(*kind),
            cool: vec![0; clients],
            used: vec![0; clients],
            left: vec![0; clients],
            ..Line::default()
        };
        let mut lives = vec![Life::default(); clients];
        for task in &program.tasks {
            lives[task.client].tasks += 1;
        }
        Self(Arc::new(Mutex::new(State {
            lines: program.world.names.iter().map(line).collect(),
            program: program.clone(),
            start: clock.now(),
            clock: clock.clone(),
            order: 0,
            facts: HashMap::new(),
            holds: Vec::new(),
            next: 0,
            asks: Vec::new(),
            lives,
            evictions: 0,
            granted: 0,
            lost: 0,
            broken: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first promise that was broken.
    pub fn verdict(&self) -> Option<Broken> {
        self.state().broken.clone()
    }

    /// How much was granted, and how much of it was lost.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state();
        (state.granted, state.lost)
    }

    /// Notes something that only the run can see.
    pub fn accuse(&self, promise: &'static str, what: String) {
        self.state().accuse(promise, what);
    }

    /// Looks at every guard and every wait.
    pub fn look(&self) {
        let mut state = self.state();
        if state.broken.is_none() {
            state.look();
        }
    }
}

impl State {
    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn accuse(&mut self, promise: &'static str, what: String) {
        let at = Duration::from_micros(self.now() - self.start);
        if self.broken.is_none() {
            self.broken = Some(Broken { promise, what, at });
        }
    }

    /// So long a few messages and polls may take where nothing fails.
    fn prompt(&self) -> Micros {
        let world = &self.program.world;
        (world.longest * 12 + world.trip * 8 + Duration::from_millis(30)).as_micros() as u64
    }

    /// So long something may be in the way, given what this world loses.
    fn slack(&self) -> Micros {
        let outage = |fate| matches!(fate, Fate::Outage(_));
        let rough =
            self.program.world.faults || self.program.hits.iter().any(|hit| outage(hit.fate));
        let lease = self.program.world.lease.as_micros() as u64;
        let longest_hit = self
            .program
            .hits
            .iter()
            .map(|hit| hit.from + hit.length)
            .max();
        let hits = longest_hit.map_or(0, |length| length.as_micros() as u64);
        self.prompt() + if rough { hits + lease * 3 } else { 0 }
    }

    /// Whether messages are quick beside this lease.
    fn near(&self, lease: Duration) -> bool {
        let world = &self.program.world;
        (world.trip + world.longest * 2 + Duration::from_millis(1)) * 6 < lease
    }

    /// Whether renewals of this lease get through in time, as far as the world goes.
    fn steady(&self, lease: Duration) -> bool {
        !self.program.world.faults && self.near(lease)
    }

    fn is_sick(&self, name: usize) -> bool {
        self.program
            .hits
            .iter()
            .any(|hit| hit.fate == Fate::Sick(name))
    }

    fn lease_of(&self, terms: &Terms) -> Duration {
        self.program.world.lease_of(terms)
    }

    fn look(&mut self) {
        self.see_losses();
        for name in 0..self.lines.len() {
            self.see_exclusion(name);
            self.see_waits(name);
        }
        self.see_the_told();
        self.see_idle_grants();
        self.see_given_back();
        self.see_fixed_leases();
        self.see_shutdowns();
    }

    fn is_valid(&self, hold: &Hold) -> bool {
        if hold.lost || (hold.told.0)() {
            return false;
        }
        if !self.program.world.loud {
            return true;
        }
        let taken = hold.taken.upgrade();
        taken.is_none_or(|taken| taken.guards()[hold.index].state() != Validity::Lost)
    }

    /// The claim that a fence of a name belongs to: the latest, since fences that were not used are given out again.
    fn fact(&self, name: usize, fence: u64) -> Option<&Fact> {
        let facts = self
            .facts
            .values()
            .filter(|fact| fact.name == name && fact.has(fence));
        facts.max_by_key(|fact| fact.first())
    }

    fn fact_mut(&mut self, name: usize, fence: u64) -> Option<&mut Fact> {
        let facts = self
            .facts
            .values_mut()
            .filter(|fact| fact.name == name && fact.has(fence));
        facts.max_by_key(|fact| fact.first())
    }
}

fn capacity(kind: Option<Kind>) -> u32 {
    match kind {
        Some(Kind::ReadWrite) => RW_CAPACITY,
        Some(Kind::Permits(permits)) => permits,
        Some(Kind::Mutex) | None => 1,
    }
}

fn promise(kind: Option<Kind>) -> &'static str {
    match kind {
        Some(Kind::ReadWrite) => "P3",
        Some(Kind::Permits(_)) => "P2",
        Some(Kind::Mutex) | None => "P1",
    }
}
