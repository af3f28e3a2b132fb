//! Small random programs over the whole API, on the real session, turns and guards, in simulated time: messages and
//! tasks are late by chance, and a judge beside the run looks at every step. A seed is a program and its delays.

pub mod actor;
pub mod campaign;
pub mod chance;
pub mod courier;
pub mod draw;
pub mod judge;
pub mod program;
pub mod shrink;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{Claim, Clock, Engine, Identity, Inbox, Memory, Mode, Query};
use leasehold::{Client, ConnectOptions, Name, Owner, TurnBound};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::actor::{Actor, Stalled};
use self::chance::{Chance, Key};
use self::courier::Courier;
use self::judge::{Broken, Judge};
use self::program::{Kind, OWNERS, Program, TURNS};
use crate::Outcome;

/// How long a grant may stay with a client while another waits.
pub const BOUND: Duration = Duration::from_millis(10);

/// The text of a name.
pub fn name(number: usize) -> String {
    format!("n{number}")
}

/// What a client calls itself.
fn client(number: usize) -> String {
    format!("c{number}")
}

/// The number of a name.
fn number(name: &str) -> usize {
    name[1..].parse().unwrap_or_default()
}

/// The result of a run.
#[derive(Debug)]
pub struct Run {
    /// The promise that was broken, if any was.
    pub broken: Option<Broken>,
    /// The delays and losses that there were.
    pub made: BTreeMap<Key, String>,
    /// How many guards were got.
    pub granted: u64,
    /// How many of them were lost.
    pub lost: u64,
}

/// Runs the program of a seed.
///
/// # Errors
/// If there is no runtime.
pub fn explore(seed: u64) -> Outcome<Run> {
    run(&draw::draw(seed), seed, &BTreeSet::new())
}

/// Runs a program with the delays of a seed, without some of them.
///
/// # Errors
/// If there is no runtime.
pub fn run(program: &Program, seed: u64, muted: &BTreeSet<Key>) -> Outcome<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    runtime.block_on(async {
        let chance = Chance::new(seed, &program.world, muted);
        let clock = Clock::simulated();
        let judge = Judge::new(program, &clock);
        let engine = Memory::new(clock.clone().faster(program.world.drift));
        play(program, &clock, &engine, &chance, &judge).await?;
        let (granted, lost) = judge.counts();
        Ok(Run {
            broken: judge.verdict(),
            made: chance.made(),
            granted,
            lost,
        })
    })
}

async fn play(
    program: &Program,
    clock: &Clock,
    engine: &Memory,
    chance: &Chance,
    judge: &Judge,
) -> Outcome<()> {
    let mut tasks = start(program, clock, engine, chance, judge).await?;
    let tick = program.world.lease / 40;
    let end = tokio::time::Instant::now() + program.world.lease * 60;
    while !tasks.is_empty() && judge.verdict().is_none() {
        match timeout(tick, tasks.join_next()).await {
            Ok(Some(Err(died))) if died.is_panic() => {
                judge.accuse("P10", format!("a task panicked: {died}"))
            }
            Ok(_) => {}
            Err(_) => {
                judge.look();
                judge.shown(&engine.inspect(&Query::all()).await?);
            }
        }
        if tokio::time::Instant::now() > end {
            judge.never_ends();
            break;
        }
    }
    if judge.verdict().is_some() || !tasks.is_empty() {
        return Ok(());
    }
    sleep(judge.patience()).await;
    touch(program, engine).await?;
    for line in engine.inspect(&Query::all()).await? {
        let (holders, waiters) = (line.holders.len(), line.waiters.len());
        judge.accuse(
            "P22",
            format!(
                "{holders} holders and {waiters} waiters are left on {}",
                line.name
            ),
        );
    }
    Ok(())
}

/// Claims that have ended by their lease are gone when the line is next used.
async fn touch(program: &Program, engine: &Memory) -> Outcome<()> {
    let session = engine
        .open(&Identity::of_this_process(), Inbox::new(|_| {}))
        .await?;
    for (number, kind) in program.world.names.iter().enumerate() {
        let mode = match *kind {
            Kind::Mutex => Mode::Mutex,
            Kind::ReadWrite => Mode::Read,
            Kind::Permits(of) => Mode::Permits { count: 1, of },
        };
        let claim = Claim::new(Name::new(name(number))?, mode, program.world.lease);
        let _ = session.claim(&claim).await?;
        let _ = session.release(&claim, 0).await?;
    }
    Ok(session.close().await?)
}

/// The clients, each known to its own tasks alone, and the tasks.
async fn start(
    program: &Program,
    clock: &Clock,
    engine: &Memory,
    chance: &Chance,
    judge: &Judge,
) -> Outcome<JoinSet<()>> {
    let mut clients: Vec<(Client, Vec<Owner>)> = Vec::new();
    for number in 0..program.world.clients {
        let courier = Arc::new(Courier::new(engine, number, program, chance, judge));
        let options = ConnectOptions::new()
            .lease(program.world.lease)
            .clock(clock.clone())
            .bound(TurnBound::new(TURNS, BOUND))
            .identity(Identity::of_this_process().called(client(number)));
        let owners = (0..OWNERS).map(|_| Owner::new()).collect();
        clients.push((options.open(courier).await?, owners));
    }
    let (begun, _) = watch::channel(vec![0; program.tasks.len()]);
    let mut tasks = JoinSet::new();
    for (index, task) in program.tasks.iter().enumerate() {
        let (client, owners) = &clients[task.client];
        let actor = Actor {
            task: index,
            number: task.client,
            client: client.clone(),
            owners: owners.clone(),
            world: program.world.clone(),
            begun: begun.clone(),
            judge: judge.clone(),
            held: Vec::new(),
        };
        let _ = tasks.spawn(Stalled::new(actor.act(task.clone()), index, chance, judge));
    }
    Ok(tasks)
}
