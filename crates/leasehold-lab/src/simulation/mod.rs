//! The real session, turns and guards over the memory engine, in simulated time: calls and events are lost, delayed, repeated
//! and hung by chance, clients are cut off, the machine sleeps, locks are taken away. One seed is one run.

pub mod campaign;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use leasehold::engine::{Clock, Engine, Identity, Memory, Query};
use leasehold::{Client, ConnectOptions, Owner, TurnBound};
use leasehold_testkit::faulty::{Fault, Faulty, Op, Plan};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Outcome;
use crate::check::{Bounds, Demands, Verdict, judge, simple};
use crate::history::{Log, Record, What, assemble};
use crate::random::Random;
use crate::torture::gate::{Gate, Visitor};
use crate::torture::hand::{Hand, Kind, TURNS, take_away, take_whole};

/// The locks of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locks {
    /// One mutex.
    Mutex,
    /// One read/write lock.
    ReadWrite,
    /// A semaphore of three.
    Semaphore,
    /// Two names in one step, one of them also alone, and a lock that is re-entered.
    ManyAndAgain,
    /// One mutex and nothing wrong: every request in line is served in its turn.
    InOrder,
}

impl Locks {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Mutex,
        Self::ReadWrite,
        Self::Semaphore,
        Self::ManyAndAgain,
        Self::InOrder,
    ];

    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read-write",
            Self::Semaphore => "semaphore",
            Self::ManyAndAgain => "many-and-again",
            Self::InOrder => "in-order",
        }
    }

    fn names(self) -> Vec<(&'static str, Kind)> {
        match self {
            Self::Mutex | Self::InOrder => vec![("mutex", Kind::Mutex)],
            Self::ReadWrite => vec![("shared", Kind::ReadWrite)],
            Self::Semaphore => vec![("permits", Kind::Permits(3))],
            Self::ManyAndAgain => vec![
                ("left", Kind::Mutex),
                ("both", Kind::Both),
                ("again", Kind::Reentrant),
            ],
        }
    }
}

impl std::str::FromStr for Locks {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|locks| locks.word() == word);
        known.ok_or_else(|| format!("known: {}", Self::ALL.map(Self::word).join(", ")))
    }
}

const LEASE: Duration = Duration::from_secs(3);
const CLIENTS: u64 = 3;
const ROUNDS: u64 = 6;

/// How far apart the clocks of the clients and of the engine may run, in millionths: the allowance of a lease.
const DRIFT: u64 = 20_000;

/// How long a lease is by our clock if the engine's is slow.
const LONGEST: Duration =
    Duration::from_micros(LEASE.as_micros() as u64 * 1_000_000 / (1_000_000 - DRIFT));

/// How far the wall clock is set at a time, in microseconds: less than a lease, so that a lock that trusts it is not
/// just late.
const FARTHEST: u64 = 2_000_000;

/// Runs one seed and judges it; also says how much simulated time passed.
///
/// # Errors
/// If the run did not come to an end.
pub fn simulate(locks: Locks, seed: u64) -> Outcome<(Verdict, Duration)> {
    let (records, time) = run(locks, seed)?;
    let history = assemble(records.clone())?;
    let mut verdict = judge(&history, &bounds(locks), &Demands::default());
    verdict.compare(simple::overlaps(&records, &[]));
    Ok((verdict, time))
}

/// Runs one seed; the records, and how much simulated time it took.
///
/// # Errors
/// If the run did not come to an end.
pub fn run(locks: Locks, seed: u64) -> Outcome<(Vec<Record>, Duration)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(async {
        let start = tokio::time::Instant::now();
        let records = World::new(locks, seed).await?.run().await?;
        Ok((records, start.elapsed()))
    })
}

fn bounds(locks: Locks) -> Bounds {
    Bounds {
        overlap: 0,
        told: LEASE.as_micros() as u64,
        overtakes: match locks {
            Locks::InOrder => 0,
            _ => u64::from(TURNS) * CLIENTS,
        },
        stall: 2 * LONGEST.as_micros() as u64,
    }
}

struct World {
    locks: Locks,
    random: Random,
    clock: Clock,
    engine: Memory,
    log: Log,
    gate: Gate,
    plans: Vec<Plan>,
    clients: Vec<Client>,
    bystander: Client,
}

impl World {
    async fn new(locks: Locks, seed: u64) -> Outcome<Self> {
        let (mut random, clock) = (Random::of(seed, CLIENTS), Clock::simulated());
        let drift = random.below(2 * DRIFT + 1) as i32 - DRIFT as i32;
        let engine = Memory::new(clock.clone().faster(drift));
        let log = Log::memory("lab", clock.clone());
        let options = |who: &str| {
            let identity = Identity::of_this_process().called(who);
            let bound = TurnBound::new(TURNS, Duration::from_millis(10));
            ConnectOptions::new()
                .lease(LEASE)
                .clock(clock.clone())
                .bound(bound)
                .identity(identity)
        };
        let (mut plans, mut clients) = (Vec::new(), Vec::new());
        for index in 0..CLIENTS {
            let plan = match locks {
                Locks::InOrder => Plan::default(),
                _ => Plan::seeded(Random::of(seed, index).next(), LEASE / 2),
            };
            let faulty: Arc<dyn Engine> = Arc::new(Faulty::new(engine.clone(), &plan));
            clients.push(options(&format!("w{index}")).open(faulty).await?);
            plans.push(plan);
        }
        let bystander = options("lab").open(Arc::new(engine.clone())).await?;
        let gate = Gate::within(&log);
        Ok(Self {
            locks,
            random,
            clock,
            engine,
            log,
            gate,
            plans,
            clients,
            bystander,
        })
    }

    async fn run(mut self) -> Outcome<Vec<Record>> {
        let mut tasks = self.start();
        while !tasks.is_empty() {
            let pause = self.random.millis(200, 6_000);
            let done = timeout(pause, tasks.join_next()).await;
            if let Ok(Some(done)) = done {
                done??;
                continue;
            }
            if self.log.now() > 3_600_000_000 * 3 {
                return Err("two simulated hours and not at an end".into());
            }
            if self.locks != Locks::InOrder {
                self.hit().await?;
            }
        }
        self.drain().await?;
        Ok(self.log.take())
    }

    fn start(&self) -> JoinSet<Outcome<()>> {
        let ops = Arc::new(AtomicU64::new(1));
        let mut tasks = JoinSet::new();
        for (client, index) in self.clients.iter().zip(0..) {
            // One client is one task, so that its place in the engine's line is known to be its own.
            let alone = index == 0 || self.locks == Locks::InOrder;
            let hands = if alone { 1 } else { 2 };
            for task in 0..hands {
                let hand = Hand {
                    client: client.clone(),
                    process: format!("w{index}"),
                    log: self.log.of(format!("w{index}/{task}")),
                    gate: Visitor::Inside(self.gate.clone()),
                    random: Random::of(self.random.clone().next(), index * 10 + task),
                    alone: hands == 1,
                    owner: Owner::new(),
                    owner_number: index * 10 + task + 1,
                    lease: LONGEST,
                    rest: LEASE / 2,
                    names: self.locks.names(),
                    ops: ops.clone(),
                };
                let mut rounds = ROUNDS;
                let _ = tasks.spawn(hand.go_on_while(move || {
                    rounds = rounds.saturating_sub(1);
                    rounds > 0
                }));
            }
        }
        tasks
    }

    /// Something beyond single calls: a client is cut off for a while, the machine sleeps, the wall clock is set, a lock is
    /// taken away.
    async fn hit(&mut self) -> Outcome<()> {
        let whom = self.random.below(CLIENTS) as usize;
        let name = self.random.pick(&self.locks.names()).0;
        match self.random.below(5) {
            0 => {
                let who = format!("w{whom}");
                self.log.note(0, What::Paused(who.clone()));
                for op in [Op::Claim, Op::Heartbeat, Op::Release, Op::Event] {
                    let fault = *self.random.pick(&[Fault::Hang, Fault::HangReply]);
                    self.plans[whom].set(op, fault);
                }
                sleep(self.random.millis(500, 8_000)).await;
                self.plans[whom].unset();
                self.log.note(0, What::Resumed(who));
            }
            1 => {
                (0..CLIENTS).for_each(|who| self.log.note(0, What::Paused(format!("w{who}"))));
                self.clock.skip(self.random.millis(100, 8_000));
                (0..CLIENTS).for_each(|who| self.log.note(0, What::Resumed(format!("w{who}"))));
            }
            // No promise depends on it, so it hits no process.
            2 => {
                let by = self.random.below(2 * FARTHEST) as i64 - FARTHEST as i64;
                self.clock.set_wall(by);
                self.use_other_names().await?;
            }
            _ => take_away(&self.bystander, name, &self.log)
                .await
                .map(drop)?,
        }
        Ok(())
    }

    /// So many that the engine forgets the names of the run that are idle.
    async fn use_other_names(&self) -> Outcome<()> {
        for number in 0..80 {
            let other = self.bystander.mutex(format!("other-{number}"));
            let _ = other.lock().await?.release().await?;
        }
        Ok(())
    }

    /// Nothing goes wrong any more: each name must be free soon, and nothing may be left.
    async fn drain(&mut self) -> Outcome<()> {
        self.plans.iter().for_each(Plan::heal);
        for (name, kind) in self.locks.names() {
            if let Ok(guard) = timeout(LEASE * 3, take_whole(&self.bystander, name, kind)).await {
                let _ = guard?.release().await?;
            } else {
                self.log.note(
                    0,
                    What::Left {
                        name: name.into(),
                        count: 1,
                    },
                );
            }
        }
        for client in &self.clients {
            let _ = client.shutdown(LEASE).await?;
        }
        for line in self.engine.inspect(&Query::all()).await? {
            let count = (line.holders.len() + line.waiters.len()) as u64;
            self.log.note(
                0,
                What::Left {
                    name: line.name.to_string(),
                    count,
                },
            );
        }
        self.gate.note_counts(&self.log);
        Ok(())
    }
}
