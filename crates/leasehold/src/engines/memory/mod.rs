#![doc = include_str!("docs.md")]

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;

use crate::claim::ById;
use crate::clock::Micros;
use crate::engine::{
    Claim, ClaimView, Clock, Ended, Engine, Event, Guarantees, Identity, Inbox, Level, LineView,
    Mode, Query, Release, Session, SessionId, Standing, Url, Verdict,
};
use crate::error::{Error, Result, Step};
use crate::fence::Fence;
use crate::line::{Change, Line, Moment};
use crate::name::Name;
use crate::sync::Shared;

/// Lines in this process's memory.
#[derive(Debug, Clone)]
pub struct Memory {
    world: Arc<World>,
    label: String,
}

/// Everything the sessions of one memory engine share.
#[derive(Debug)]
struct World {
    clock: Clock,
    /// How far the wall clock was ahead when all began. Fences follow it from there, also when it is set back.
    wall_ahead: Micros,
    state: Shared<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: ById<Name, Kept>,
    idle: Idle,
    sessions: ById<SessionId, (Identity, Inbox)>,
}

#[derive(Debug, Default)]
struct Kept {
    line: Line,
    /// Whether its name is among the idle ones.
    listed: bool,
}

/// Names that became idle, in that order, each with its last fence: once the clock has passed that, the line can be
/// forgotten.
type Idle = VecDeque<(u64, Name)>;

/// The engine of a `memory:` URL. `memory:LABEL` is the same lines wherever it is opened in this process.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    static LABELLED: OnceLock<Mutex<HashMap<String, Weak<World>>>> = OnceLock::new();
    url.params().finish()?;
    let label = url.path().to_owned();
    if label.is_empty() {
        return Ok(Arc::new(Memory::new(Clock::boot())));
    }
    let labelled = LABELLED.get_or_init(Mutex::default);
    let mut labelled = labelled.lock().unwrap_or_else(PoisonError::into_inner);
    let world = labelled.get(&label).and_then(Weak::upgrade);
    let world = world.unwrap_or_else(|| World::new(Clock::boot()));
    let _ = labelled.insert(label.clone(), Arc::downgrade(&world));
    Ok(Arc::new(Memory { world, label }))
}

impl Memory {
    /// Lines of its own, on this clock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Options, engine::{Clock, Memory}};
    /// let clock = Clock::simulated();
    /// let engine = std::sync::Arc::new(Memory::new(clock.clone()));
    /// let client = Options::new().clock(clock).open(engine).await?;
    /// # Ok(()) }
    /// ```
    pub fn new(clock: Clock) -> Self {
        Self {
            world: World::new(clock),
            label: String::new(),
        }
    }
}

impl World {
    fn new(clock: Clock) -> Arc<Self> {
        let wall_ahead = clock.wall().saturating_sub(clock.now());
        let state = Shared::default();
        Arc::new(Self {
            clock,
            wall_ahead,
            state,
        })
    }

    fn moment(&self) -> Moment {
        let now = self.clock.now();
        let floor = now + self.wall_ahead;
        Moment { now, floor }
    }

    /// Tells the sessions, without the lock: what they do next may come back here.
    fn tell(&self, told: Vec<(Inbox, Event)>) {
        for (inbox, event) in told {
            inbox.deliver(event);
        }
    }
}

impl Kept {
    /// Remembers to forget the line, if nobody is in it.
    fn list(&mut self, name: &Name, idle: &mut Idle) {
        if self.line.is_idle() && !self.listed {
            self.listed = true;
            idle.push_back((self.line.last_fence(), name.clone()));
        }
    }
}

impl State {
    /// Forgets the lines that nobody is in and whose last fence the clock has passed.
    fn tidy(&mut self, at: Moment) {
        let passed = |(last, _): &(u64, Name)| *last < at.floor;
        while self.idle.front().is_some_and(passed) {
            let Some((_, name)) = self.idle.pop_front() else {
                return;
            };
            let Some(kept) = self.lines.get_mut(&name) else {
                continue;
            };
            if forgettable(&kept.line, at) {
                drop(self.lines.remove(&name));
            } else {
                kept.listed = false;
                kept.list(&name, &mut self.idle);
            }
        }
    }

    fn address(&self, changes: Vec<Change>, evicted: Option<&Ended>) -> Vec<(Inbox, Event)> {
        let addressed = changes.into_iter().filter_map(|change| {
            let (_, inbox) = self.sessions.get(&change.session)?;
            Some((inbox.clone(), change.event(evicted)))
        });
        addressed.collect()
    }
}

#[async_trait]
impl Engine for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn location(&self) -> String {
        match self.label.as_str() {
            "" => format!("memory:#{:p}", Arc::as_ptr(&self.world)),
            label => format!("memory:{label}"),
        }
    }

    fn guarantees(&self) -> Guarantees {
        use Verdict::{Absent, Fenced, Kept};
        Guarantees::new(
            "memory",
            Level::L2,
            [Kept, Fenced, Kept, Absent, Absent, Absent],
        )
        .scope("the tasks and threads of this process")
        .dead_holder("they die together")
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let id = SessionId::random();
        let sessions = &mut self.world.state.lock().sessions;
        let _ = sessions.insert(id, (who.clone(), inbox));
        let world = self.world.clone();
        Ok(Arc::new(MemorySession { id, world }))
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        let clock = &self.world.clock;
        let state = self.world.state.lock();
        let wanted = |name: &Name| query.name.as_ref().is_none_or(|only| only == name);
        let lines = state
            .lines
            .iter()
            .map(|(name, kept)| (name, &kept.line))
            .filter(|(name, line)| wanted(name) && !line.is_idle());
        let views = lines.map(|(name, line)| {
            let claims = line.places().map(|place| {
                let who = state
                    .sessions
                    .get(&place.session)
                    .map(|(who, _)| who.clone());
                let mode = Mode::of(place.weight, line.capacity());
                let (since, until) = (
                    clock.wall_time_of(place.since),
                    clock.wall_time_of(place.deadline),
                );
                let lease = Duration::from_micros(place.lease);
                ClaimView::new(place.fence, mode, who, since, until).lease(lease)
            });
            LineView::new(name.clone(), claims)
        });
        let mut views: Vec<_> = views.collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(views)
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        let at = self.world.moment();
        let told = {
            let state = &mut *self.world.state.lock();
            let Some(kept) = state.lines.get_mut(name) else {
                return Ok(0);
            };
            let changes = kept.line.evict(fence, at);
            kept.list(name, &mut state.idle);
            state.tidy(at);
            let ended = Ended::Evicted {
                by: by.to_string(),
                why: why.to_owned(),
            };
            state.address(changes, Some(&ended))
        };
        tracing::warn!(%name, %by, why, "evicted");
        let evicted =
            |(_, event): &&(Inbox, Event)| matches!(event, Event::Ended(_, Ended::Evicted { .. }));
        let count = told.iter().filter(evicted).count();
        self.world.tell(told);
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    async fn ask_to_release(&self, name: &Name, fence: Option<Fence>) -> Result<u32> {
        let told: Vec<_> = {
            let state = self.world.state.lock();
            let holders = state
                .lines
                .get(name)
                .into_iter()
                .flat_map(|kept| kept.line.holders());
            let meant = holders.filter(|place| fence.is_none_or(|fence| place.owns(fence)));
            let asked = meant.filter_map(|place| {
                let (_, inbox) = state.sessions.get(&place.session)?;
                Some((inbox.clone(), Event::Asked(place.id)))
            });
            asked.collect()
        };
        let count = u32::try_from(told.len()).unwrap_or(u32::MAX);
        self.world.tell(told);
        Ok(count)
    }
}

/// Whether nothing need be remembered of a line: nobody is in it, and the clock has passed its last fence.
fn forgettable(line: &Line, at: Moment) -> bool {
    line.is_idle() && line.last_fence() < at.floor
}

#[derive(Debug)]
struct MemorySession {
    id: SessionId,
    world: Arc<World>,
}

impl MemorySession {
    fn join(&self, claim: &Claim) -> Result<Standing> {
        let at = self.world.moment();
        let (answer, told) = {
            let state = &mut *self.world.state.lock();
            if !state.sessions.contains_key(&self.id) {
                return Err(Error::closed(Step::Claim).on("memory"));
            }
            let kept = match state.lines.get_mut(&claim.name) {
                Some(kept) => kept,
                None => state.lines.entry(claim.name.clone()).or_default(),
            };
            let (answer, changes) = kept.line.claim(&claim.ask(self.id), at);
            if answer.is_err() {
                kept.list(&claim.name, &mut state.idle);
            }
            (answer, state.address(changes, None))
        };
        self.world.tell(told);
        Ok(answer?)
    }

    fn leave(&self, claim: &Claim, used: u32) -> Release {
        let at = self.world.moment();
        let (release, told) = {
            let state = &mut *self.world.state.lock();
            let Some(kept) = state.lines.get_mut(&claim.name) else {
                return Release::Gone;
            };
            let (release, changes) = kept.line.release(claim.id, used, at);
            kept.list(&claim.name, &mut state.idle);
            state.tidy(at);
            (release, state.address(changes, None))
        };
        self.world.tell(told);
        release
    }
}

#[async_trait]
impl Session for MemorySession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.join(claim)
    }

    fn claim_now(&self, claim: &Claim) -> Option<Result<Standing>> {
        Some(self.join(claim))
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>> {
        let at = self.world.moment();
        let mut told = Vec::new();
        let mut standings = Vec::with_capacity(claims.len());
        {
            let state = &mut *self.world.state.lock();
            for claim in claims {
                let Some(kept) = state.lines.get_mut(&claim.name) else {
                    standings.push(Standing::Gone);
                    continue;
                };
                let (standing, changes) = kept.line.heartbeat(claim.id, at);
                kept.list(&claim.name, &mut state.idle);
                standings.push(standing);
                told.extend(state.address(changes, None));
            }
            state.tidy(at);
        }
        self.world.tell(told);
        Ok(standings)
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        Ok(self.leave(claim, used))
    }

    fn release_now(&self, claim: &Claim, used: u32) -> Option<Result<Release>> {
        Some(Ok(self.leave(claim, used)))
    }

    async fn close(&self) -> Result<()> {
        let at = self.world.moment();
        let told = {
            let state = &mut *self.world.state.lock();
            drop(state.sessions.remove(&self.id));
            let mut changes = Vec::new();
            for (name, kept) in &mut state.lines {
                changes.extend(kept.line.sweep_dead(at, |session| session == self.id));
                kept.list(name, &mut state.idle);
            }
            state.tidy(at);
            state.address(changes, None)
        };
        self.world.tell(told);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_names_are_forgotten_however_quick() {
        let engine = Memory::new(Clock::boot());
        let session = engine
            .open(&Identity::of_this_process(), Inbox::new(|_| {}))
            .await
            .unwrap();
        let lease = std::time::Duration::from_secs(10);
        for number in 0..10_000 {
            let name = Name::new(format!("once:{number}")).unwrap();
            let claim = Claim::new(name, Mode::Mutex, lease);
            assert!(matches!(
                session.claim(&claim).await.unwrap(),
                Standing::Held(_)
            ));
            assert_eq!(session.release(&claim, 1).await.unwrap(), Release::Released);
        }
        let lines = engine.world.state.lock().lines.len();
        assert!(lines < 100, "{lines} idle names are remembered");
        let claim = Claim::new(Name::new("often").unwrap(), Mode::Mutex, lease);
        for _ in 0..10_000 {
            let _ = session.claim(&claim).await.unwrap();
            let _ = session.release(&claim, 1).await.unwrap();
        }
        let idle = engine.world.state.lock().idle.len();
        assert!(idle < 100, "a name is listed once, not {idle} times");
    }
}
