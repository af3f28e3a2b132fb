#![doc = include_str!("docs.md")]

mod attempt;
mod calls;
mod config;
mod entry;
mod evicted;
mod node;
mod nodes;
mod post;
mod script;
mod session;
mod view;
mod wait;

use std::sync::Arc;

use async_trait::async_trait;

use self::calls::Said;
use self::config::Config;
use self::nodes::Nodes;
use self::script::Run;
use self::session::RedlockSession;
use super::inspect;
use super::keys::claim_text;
use super::words::eviction;
use crate::claim::{ById, ClaimId};
use crate::engine::{
    Engine, Fault, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url, Verdict,
    cannot_ask,
};
use crate::error::{Result, Step};
use crate::fence::Fence;
use crate::name::Name;

/// Locks held by a majority of independent Redis servers.
#[derive(Debug, Clone)]
pub struct Redlock {
    nodes: Arc<Nodes>,
}

/// The engine of a `redlock:` URL.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(Redlock::from_url(url)?))
}

impl Redlock {
    /// The deployment that a URL describes. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that cannot be.
    ///
    /// ```
    /// use leasehold::engine::{Engine, Redlock, Url};
    /// let redlock = Redlock::from_url(&Url::parse("redlock://app:hunter2@c,b,a")?)?;
    /// assert_eq!(redlock.location(), "redlock://a:6379,b:6379,c:6379/0?prefix=lh:rl:");
    /// assert!(!redlock.guarantees().shared);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self> {
        let nodes = Nodes::new(Config::of(url)?);
        Ok(Self { nodes })
    }
}

fn answered<T>(said: &Said<T>) -> usize {
    said.iter().flatten().flatten().count()
}

#[async_trait]
impl Engine for Redlock {
    fn kind(&self) -> &'static str {
        "redlock"
    }

    fn location(&self) -> String {
        self.nodes.config.location()
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Fenced, Kept};
        Guarantees::new("redlock", Level::L2)
            .verdict(Kept, [HolderCrash, ServerCrash, Partition])
            .verdict(Fenced, [Pause, ClockStep, Failover])
            .scope("every process that reaches a majority of these servers, while no clock of theirs steps")
            .dead_holder("when its lease ends, and waiters ask again")
            .fences("the largest that a majority of the servers has seen, and more")
            .mutex_only()
            .unordered()
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let majority = self.nodes.majority();
        let said = self.nodes.ready().await;
        match answered(&said) >= majority {
            true => Ok(RedlockSession::open(self.nodes.clone(), who, inbox)),
            false => Err(self.nodes.short(&said, Step::Open)),
        }
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        let names = match &query.name {
            Some(name) => vec![name.clone()],
            None => self.nodes.names().await?,
        };
        self.nodes.lines(&names).await
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        let keys = self.nodes.config.keys();
        let run = Run::evict(keys, name, fence, eviction(&by.to_string(), why));
        let said = self
            .nodes
            .ask(vec![run], self.nodes.config.unhurried(), |_| false)
            .await;
        if answered(&said) < self.nodes.majority() {
            return Err(self.nodes.short(&said, Step::Evict).of(name));
        }
        let mut evicted = ById::<ClaimId, usize>::default();
        for answers in said.iter().flatten().flatten() {
            if let Some((id, _)) = answers.first().and_then(|answer| script::evicted(answer)) {
                *evicted.entry(id).or_default() += 1;
            }
        }
        evicted.retain(|_, nodes| *nodes >= self.nodes.majority());
        if !evicted.is_empty() {
            tracing::warn!(%name, %by, why, "evicted");
            let claims: Vec<_> = evicted.keys().map(|id| claim_text(*id)).collect();
            let entry = inspect::eviction(&keys.evictions(), name, ("claims", &claims), by, why);
            self.nodes.note(entry).await;
        }
        Ok(u32::try_from(evicted.len()).unwrap_or(u32::MAX))
    }

    async fn ask_to_release(&self, name: &Name, _: Option<Fence>) -> Result<u32> {
        Err(cannot_ask(self.kind(), name))
    }
}
