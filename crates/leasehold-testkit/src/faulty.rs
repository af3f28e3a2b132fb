//! An engine around an engine that loses, delays and repeats.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use leasehold::engine::Step;
use leasehold::engine::{
    Claim, Engine, Event, Guarantees, Heard, Identity, Inbox, LineView, Query, Release, Session,
    Standing,
};
use leasehold::{Error, ErrorKind, Fence, Name, Result};

use crate::random::Random;

/// The operations of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Begins.
    Open,
    /// Asks for a name.
    Claim,
    /// Keeps claims alive.
    Heartbeat,
    /// Gives one back.
    Release,
    /// Is told an event.
    Event,
    /// Ends.
    Close,
}

/// The fault of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// The engine never sees it; the caller is told so.
    Refuse,
    /// The engine does it; the answer is lost, and the caller is told that it may have happened.
    LoseReply,
    /// The engine never sees it, and no answer comes.
    Hang,
    /// The engine does it, and no answer comes.
    HangReply,
    /// The engine sees it late.
    Delay(Duration),
    /// The answer comes late.
    DelayReply(Duration),
    /// A heartbeat's claims are asked about one after the other, in its order, each for so long; of other calls, the answer
    /// comes late.
    OneByOne(Duration),
    /// The engine is asked twice; the second answer counts. An event comes twice.
    Repeat,
}

/// Which fault each operation meets, and how often each was called. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Plan(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    faults: HashMap<Op, Fault>,
    calls: HashMap<Op, u64>,
    claims_beaten: u64,
    inboxes: Vec<Inbox>,
    chance: Option<(Random, Duration)>,
}

/// A fault by chance: most calls meet none, and delays are up to the longest.
fn by_chance(random: &mut Random, op: Op, longest: Duration) -> Fault {
    if matches!(op, Op::Open | Op::Close) {
        return Fault::None;
    }
    let by = Duration::from_micros(random.below(longest.as_micros() as u64));
    match (random.below(24), op) {
        (0, Op::Event) | (1, _) => Fault::LoseReply,
        (2, _) => Fault::Repeat,
        (3 | 4, _) => Fault::Delay(by),
        (5, Op::Claim | Op::Heartbeat | Op::Release) => Fault::DelayReply(by),
        (6, Op::Claim | Op::Heartbeat | Op::Release) => Fault::Refuse,
        (7, Op::Claim | Op::Heartbeat | Op::Release) => Fault::Hang,
        (8, Op::Claim | Op::Heartbeat | Op::Release) => Fault::HangReply,
        _ => Fault::None,
    }
}

impl Plan {
    /// Every call meets a fault by chance, the same for the same seed; delays are up to the longest.
    pub fn seeded(seed: u64, longest: Duration) -> Self {
        let plan = Self::default();
        plan.state().chance = Some((Random::new(seed), longest));
        plan
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this operation meets this fault.
    pub fn set(&self, op: Op, fault: Fault) {
        let _ = self.state().faults.insert(op, fault);
    }

    /// From now on nothing goes wrong.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.chance = None;
    }

    /// Forgets the faults that were [`set`](Self::set); those by chance go on.
    pub fn unset(&self) {
        self.state().faults.clear();
    }

    fn set_for(&self, op: Op) -> Fault {
        self.state().faults.get(&op).copied().unwrap_or_default()
    }

    /// How often an operation was called.
    pub fn calls(&self, op: Op) -> u64 {
        self.state().calls.get(&op).copied().unwrap_or(0)
    }

    /// How many claims all heartbeats were for.
    pub fn claims_beaten(&self) -> u64 {
        self.state().claims_beaten
    }

    /// Tells every session an event, as if the engine had.
    pub fn tell(&self, event: &Event) {
        let inboxes = self.state().inboxes.clone();
        inboxes
            .iter()
            .for_each(|inbox| inbox.deliver(event.clone()));
    }

    fn next(&self, op: Op) -> Fault {
        let mut state = self.state();
        *state.calls.entry(op).or_default() += 1;
        if let Some(fault) = state.faults.get(&op) {
            return *fault;
        }
        let chance = state.chance.as_mut();
        chance.map_or(Fault::None, |(random, longest)| {
            by_chance(random, op, *longest)
        })
    }

    /// Does what the plan says to a call; `again` is the same call, not begun.
    async fn through<T>(
        &self,
        op: Op,
        step: Step,
        call: Call<'_, T>,
        again: Call<'_, T>,
    ) -> Result<T> {
        let failed = |why: &str| Error::new(ErrorKind::Unavailable, step, why).on("faulty");
        match self.next(op) {
            Fault::None => call.await,
            Fault::Refuse => Err(failed("refused by plan")),
            Fault::LoseReply => {
                let _ = call.await;
                Err(failed("reply lost by plan").perhaps())
            }
            Fault::Hang => std::future::pending().await,
            Fault::HangReply => {
                let _ = call.await;
                std::future::pending().await
            }
            Fault::Delay(by) => {
                tokio::time::sleep(by).await;
                call.await
            }
            Fault::DelayReply(by) | Fault::OneByOne(by) => {
                let answer = call.await;
                tokio::time::sleep(by).await;
                answer
            }
            Fault::Repeat => {
                let _ = call.await;
                again.await
            }
        }
    }
}

/// Delivers an event later, past others.
fn late(inbox: Inbox, event: Event, by: Duration) {
    drop(tokio::spawn(async move {
        tokio::time::sleep(by).await;
        inbox.deliver(event);
    }));
}

/// One call of the engine inside.
type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// An engine whose sessions meet the faults of a plan.
#[derive(Debug)]
pub struct Faulty<E> {
    inner: E,
    plan: Plan,
}

impl<E: Engine> Faulty<E> {
    /// Wraps an engine.
    pub fn new(inner: E, plan: &Plan) -> Self {
        let plan = plan.clone();
        Self { inner, plan }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<E: Engine> Engine for Faulty<E> {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn location(&self) -> String {
        self.inner.location()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        self.plan.state().inboxes.push(inbox.clone());
        let plan = self.plan.clone();
        let filtered = Inbox::new(move |event| match plan.next(Op::Event) {
            Fault::None => inbox.deliver(event),
            Fault::Repeat => {
                inbox.deliver(event.clone());
                inbox.deliver(event);
            }
            Fault::Delay(by) => late(inbox.clone(), event, by),
            _ => {}
        });
        let call = || self.inner.open(who, filtered.clone());
        let (first, again) = (call(), call());
        let opened = self.plan.through(Op::Open, Step::Open, first, again);
        let inner = opened.await?;
        let plan = self.plan.clone();
        Ok(Arc::new(FaultySession { inner, plan }))
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        self.inner.inspect(query).await
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        self.inner.evict(name, fence, by, why).await
    }

    async fn ask_to_release(&self, name: &Name, fence: Option<Fence>) -> Result<u32> {
        self.inner.ask_to_release(name, fence).await
    }
}

#[derive(Debug)]
struct FaultySession {
    inner: Arc<dyn Session>,
    plan: Plan,
}

/// The standings that a heartbeat told, and how it ended.
type Beaten = (Vec<(Claim, Standing)>, Result<()>);

impl FaultySession {
    /// A heartbeat whose answers can still be lost.
    fn beat<'a>(&'a self, claims: &'a [Arc<Claim>]) -> Call<'a, Beaten> {
        Box::pin(async move {
            let told = Mutex::new(Vec::new());
            let heard = |claim: &Claim, standing| {
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.push((claim.clone(), standing));
            };
            let answer = self.inner.heartbeat(claims, &heard).await;
            let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
            Ok((told, answer))
        })
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Session for FaultySession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let call = || self.inner.claim(claim);
        let (first, again) = (call(), call());
        self.plan
            .through(Op::Claim, Step::Claim, first, again)
            .await
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        self.plan.state().claims_beaten += claims.len() as u64;
        if let Fault::OneByOne(by) = self.plan.set_for(Op::Heartbeat) {
            let _ = self.plan.next(Op::Heartbeat);
            for claim in claims {
                tokio::time::sleep(by).await;
                let one = std::slice::from_ref(claim);
                self.inner.heartbeat(one, heard).await?;
            }
            return Ok(());
        }
        let (first, again) = (self.beat(claims), self.beat(claims));
        let through = self
            .plan
            .through(Op::Heartbeat, Step::Heartbeat, first, again);
        let (told, answer) = through.await?;
        for (claim, standing) in told {
            heard(&claim, standing);
        }
        answer
    }

    fn lease(&self, claim: &Claim) -> Duration {
        self.inner.lease(claim)
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let call = || self.inner.release(claim, used);
        let (first, again) = (call(), call());
        self.plan
            .through(Op::Release, Step::Release, first, again)
            .await
    }

    async fn close(&self) -> Result<()> {
        let (first, again) = (self.inner.close(), self.inner.close());
        self.plan
            .through(Op::Close, Step::Close, first, again)
            .await
    }
}
