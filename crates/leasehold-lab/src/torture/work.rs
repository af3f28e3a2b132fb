//! What a worker does: asks, holds, looks at its guard, tries effects, releases, all from its seed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::engine::{Identity, Query};
use leasehold::{Bound, Client, Guard, Name, Options, Owner, Released, State};
use tokio::task::JoinSet;

use super::gate::Visitor;
use crate::Outcome;
use crate::history::{Call, Log, What};
use crate::random::Random;

/// What a worker process is told on its command line.
#[derive(Debug, Clone)]
pub struct Work {
    /// Where to lock.
    pub url: String,
    /// Its name in the history.
    pub who: String,
    /// Its history.
    pub log: PathBuf,
    /// The resource.
    pub gate: PathBuf,
    /// Its random numbers.
    pub seed: u64,
    /// The lease of every lock.
    pub lease: Duration,
    /// How many tasks it runs.
    pub tasks: u64,
}

/// How many turns a grant may serve in one process while another waits.
pub(super) const TURNS: u32 = 4;

/// The names that are locked, and how.
pub(super) const NAMES: [(&str, Kind); 5] = [
    ("mutex", Kind::Mutex),
    ("hot", Kind::Mutex),
    ("again", Kind::Reentrant),
    ("shared", Kind::ReadWrite),
    ("permits", Kind::Permits(3)),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mutex,
    Reentrant,
    ReadWrite,
    Permits(u32),
}

/// Works until stdin ends.
///
/// # Errors
/// If it cannot connect, or the resource is gone.
pub async fn work(work: Work) -> Outcome<()> {
    let options = Options::new().lease(work.lease).bound(Bound::new(TURNS, Duration::from_millis(10)));
    let identity = Identity::of_this_process().called(&work.who);
    let client = options.identity(identity).connect(&work.url).await?;
    let log = Log::file(&work.log, &work.who)?;
    let stop = Arc::new(AtomicBool::new(false));
    let ops = Arc::new(AtomicU64::new(1));
    let mut tasks = JoinSet::new();
    for task in 0..work.tasks {
        let hand = Hand {
            client: client.clone(),
            log: log.of(format!("{}/{task}", work.who)),
            gate: Visitor::new(&work.gate)?,
            random: Random::of(work.seed, task),
            alone: work.tasks == 1,
            owner: Owner::new(),
            owner_number: u64::from(std::process::id()) * 100 + task + 1,
            lease: work.lease,
            ops: ops.clone(),
        };
        let _ = tasks.spawn(hand.go_on_until(stop.clone()));
    }
    let told = stop.clone();
    let listening = tokio::task::spawn_blocking(move || {
        let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
        told.store(true, Ordering::Release);
    });
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    listening.abort();
    let _ = client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// One task of a worker.
struct Hand {
    client: Client,
    log: Log,
    gate: Visitor,
    random: Random,
    /// The only task of its process: its claim in the engine's line is its own.
    alone: bool,
    owner: Owner,
    owner_number: u64,
    lease: Duration,
    ops: Arc<AtomicU64>,
}

impl Hand {
    async fn go_on_until(mut self, stop: Arc<AtomicBool>) -> Outcome<()> {
        while !stop.load(Ordering::Acquire) {
            self.one().await?;
            if self.random.one_in(4) {
                tokio::time::sleep(self.random.millis(0, 5)).await;
            }
        }
        Ok(())
    }

    async fn one(&mut self) -> Outcome<()> {
        let (name, kind) = *self.random.pick(&NAMES);
        let (weight, capacity) = match kind {
            Kind::Mutex | Kind::Reentrant => (1, 1),
            Kind::ReadWrite if self.random.one_in(3) => (u32::MAX, u32::MAX),
            Kind::ReadWrite => (1, u32::MAX),
            Kind::Permits(all) => (self.random.within(1, u64::from(all) + 1) as u32, all),
        };
        let owner = if kind == Kind::Reentrant { self.owner_number } else { 0 };
        let call = Call { name: name.into(), weight, capacity, waits: true, lease: self.lease.as_micros() as u64, owner };
        let Some((op, guard)) = self.ask(kind, &call).await? else { return Ok(()) };
        if kind == Kind::Reentrant && self.random.one_in(2) {
            let inner = self.ask(kind, &call).await?;
            if let Some((op, guard)) = inner {
                self.hold(op, guard, true).await?;
            }
        }
        self.hold(op, guard, weight == capacity).await
    }

    /// Asks once: waits, tries, waits a while, or gives up somewhere in between.
    async fn ask(&mut self, kind: Kind, call: &Call) -> Outcome<Option<(u64, Guard)>> {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let (patience, gives_up) = match self.random.below(10) {
            0 => (Patience::None, None),
            1 => (Patience::Some(self.random.millis(0, 100)), None),
            2 => (Patience::Endless, Some(self.random.millis(0, 60))),
            _ => (Patience::Endless, None),
        };
        let waits = patience != Patience::None;
        self.log.note(op, What::Call(Call { waits, ..call.clone() }));
        let asked = lock(&self.client, &self.owner, kind, call, patience);
        let asked = async {
            tokio::pin!(asked);
            tokio::select! {
                biased;
                answer = &mut asked => return Some(answer),
                () = self.note_queued(op, &call.name) => {}
            }
            Some(asked.await)
        };
        let answer = match gives_up {
            None => asked.await,
            Some(after) => tokio::time::timeout(after, asked).await.unwrap_or(None),
        };
        let what = match answer {
            None => What::Cancelled,
            // Time ran out: that says nothing of who held.
            Some(Ok(None)) if waits => What::Cancelled,
            Some(Ok(None)) => What::Busy,
            Some(Err(error)) => What::Failed { perhaps: error.may_have_happened() },
            Some(Ok(Some(guard))) => {
                let until = self.until(&guard);
                self.log.note(op, What::Granted { fence: guard.fence().get(), until });
                return Ok(Some((op, guard)));
            }
        };
        self.log.note(op, what);
        Ok(None)
    }

    /// Asks the engine whether our claim is in its line; comes back once it was seen there.
    async fn note_queued(&self, op: u64, name: &str) {
        if !self.alone {
            return std::future::pending().await;
        }
        let Ok(name) = Name::new(name) else { return };
        let query = Query::name(name);
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let lines = self.client.inspect(&query).await.unwrap_or_default();
            let mut waiters = lines.iter().flat_map(|line| &line.waiters);
            if waiters.any(|claim| claim.who.as_ref().is_some_and(|who| who.pid == std::process::id())) {
                return self.log.note(op, What::Queued);
            }
        }
    }

    /// The end of validity, never later than it is.
    fn until(&self, guard: &Guard) -> u64 {
        let now = self.log.now();
        now + guard.remaining().as_micros() as u64
    }

    /// Holds for a while, looking before each step; a step that comes too late is tried all the same.
    async fn hold(&mut self, op: u64, guard: Guard, alone: bool) -> Outcome<()> {
        let fence = guard.fence().get();
        let name = guard.name().as_str().to_owned();
        let who = self.log.who().to_owned();
        for _ in 0..self.random.within(1, 5) {
            let now_lost = guard.state() == State::Lost;
            // Only who holds alone changes the resource. That it looked is no protection: it may stand still here.
            if alone {
                let _ = self.gate.knock(&name, &who, fence)?;
            }
            if now_lost {
                self.log.note(op, What::Lost);
                break;
            }
            let rest = self.random.millis(0, 20);
            let lost = tokio::time::timeout(rest, guard.lost()).await;
            if lost.is_ok() {
                self.log.note(op, What::Lost);
                if alone {
                    let _ = self.gate.knock(&name, &who, fence)?;
                }
                break;
            }
            let until = self.until(&guard);
            if guard.state() != State::Lost {
                self.log.note(op, What::Until(until));
            }
        }
        self.log.note(op, What::Release);
        if self.random.one_in(8) {
            drop(guard);
        } else if let Ok(released) = guard.release().await {
            self.log.note(op, What::Released { held: released == Released::Released });
        }
        Ok(())
    }
}

/// How long somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    None,
    Some(Duration),
    Endless,
}

async fn lock(client: &Client, owner: &Owner, kind: Kind, call: &Call, patience: Patience) -> leasehold::Result<Option<Guard>> {
    match kind {
        Kind::Mutex | Kind::Reentrant => {
            let mutex = client.mutex(&call.name);
            let mutex = if kind == Kind::Reentrant { mutex.owner(owner) } else { mutex };
            match patience {
                Patience::None => mutex.try_lock().await,
                Patience::Some(patience) => mutex.lock_within(patience).await,
                Patience::Endless => mutex.lock().await.map(Some),
            }
        }
        Kind::ReadWrite if call.weight == 1 => {
            let lock = client.rwlock(&call.name);
            match patience {
                Patience::None => lock.try_read().await,
                Patience::Some(patience) => lock.read_within(patience).await,
                Patience::Endless => lock.read().await.map(Some),
            }
        }
        Kind::ReadWrite => {
            let lock = client.rwlock(&call.name);
            let guard = match patience {
                Patience::None => lock.try_write().await?,
                Patience::Some(patience) => lock.write_within(patience).await?,
                Patience::Endless => Some(lock.write().await?),
            };
            Ok(guard.map(Guard::from))
        }
        Kind::Permits(all) => {
            let lock = client.semaphore(&call.name, all);
            match patience {
                Patience::None => lock.try_acquire_many(call.weight).await,
                Patience::Some(patience) => lock.acquire_many_within(call.weight, patience).await,
                Patience::Endless => lock.acquire_many(call.weight).await.map(Some),
            }
        }
    }
}

/// Takes all there is of a name.
pub(super) async fn take_whole(client: &Client, name: &str, kind: Kind) -> leasehold::Result<Guard> {
    match kind {
        Kind::Mutex | Kind::Reentrant => client.mutex(name).lock().await,
        Kind::ReadWrite => client.rwlock(name).write().await.map(Guard::from),
        Kind::Permits(all) => client.semaphore(name, all).acquire_many(all).await,
    }
}
