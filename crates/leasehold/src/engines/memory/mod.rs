#![doc = include_str!("docs.md")]

mod session;
mod world;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::session::MemorySession;
use self::world::World;
use crate::engine::{
    ClaimView, Clock, Ended, Engine, Event, Fault, Guarantees, Identity, Inbox, Level, LineView,
    Mode, Query, Session, SessionId, Url, Verdict,
};
use crate::error::Result;
use crate::fence::Fence;
use crate::name::Name;

/// Lines in this process's memory.
#[derive(Debug, Clone)]
pub struct Memory {
    world: Arc<World>,
}

/// The engine of a `memory:` URL. `memory:LABEL` is the same lines wherever it is opened in this process.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    url.params().finish()?;
    let world = match url.path() {
        "" => World::new(Clock::boot(), String::new()),
        label => World::labelled(label),
    };
    Ok(Arc::new(Memory { world }))
}

impl Memory {
    /// Lines of its own, on this clock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{ConnectOptions, engine::{Clock, Memory}};
    /// let clock = Clock::simulated();
    /// let engine = std::sync::Arc::new(Memory::new(clock.clone()));
    /// let client = ConnectOptions::new().clock(clock).open(engine).await?;
    /// # Ok(()) }
    /// ```
    pub fn new(clock: Clock) -> Self {
        Self {
            world: World::new(clock, String::new()),
        }
    }
}

#[async_trait]
impl Engine for Memory {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn location(&self) -> String {
        match self.world.label.as_str() {
            "" => format!("memory:#{:p}", Arc::as_ptr(&self.world)),
            label => format!("memory:{label}"),
        }
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Absent, Fenced, Kept};
        Guarantees::new("memory", Level::L2)
            .verdict(Kept, [HolderCrash, ClockStep])
            .verdict(Fenced, [Pause])
            .verdict(Absent, [ServerCrash, Failover, Partition])
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
                let view = ClaimView::new(place.fence, mode, who, since, until);
                view.lease(lease).held_by_fence()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Claim, Release, Standing};
    use crate::fence::Fence;

    #[test]
    fn a_label_is_the_same_lines_and_is_forgotten_after_use() {
        let url = |label: &str| Url::parse(&format!("memory:{label}")).unwrap();
        let (one, two) = (World::labelled("shared"), World::labelled("shared"));
        assert!(Arc::ptr_eq(&one, &two));
        for number in 0..1_000 {
            drop(open(&url(&format!("once:{number}"))).unwrap());
        }
        drop((one, two));
        let kept = world::labels().lock().keys().cloned().collect::<Vec<_>>();
        let ours = kept
            .iter()
            .filter(|label| label.starts_with("once:") || *label == "shared");
        assert_eq!(ours.count(), 0, "{kept:?}");
    }

    #[tokio::test]
    async fn idle_names_are_forgotten_however_quick() {
        let engine = Memory::new(Clock::boot());
        let session = engine
            .open(&Identity::of_this_process(), Inbox::new(|_| {}))
            .await
            .unwrap();
        let lease = std::time::Duration::from_secs(10);
        let mut last = Fence::new(0);
        // The first once more: it was forgotten, and its fences grow all the same.
        for number in (0..10_000).chain([0]) {
            let name = Name::new(format!("once:{number}")).unwrap();
            let claim = Claim::new(name, Mode::Mutex, lease);
            let Standing::Held(held) = session.claim(&claim).await.unwrap() else {
                panic!("once:{number} is not free");
            };
            if number == 0 {
                assert!(held.fence > last, "{} after {last}", held.fence);
                last = held.fence;
            }
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
