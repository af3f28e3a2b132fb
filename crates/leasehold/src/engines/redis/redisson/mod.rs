#![doc = include_str!("docs.md")]

mod channels;
mod hub;
mod kind;
mod script;
mod session;
mod view;

use std::sync::Arc;

use async_trait::async_trait;

use self::hub::Hub;
pub(super) use self::kind::Kinds;
use self::script::Run;
use self::session::RedissonSession;
use super::client::Reply;
use super::config::{Config, Shape};
use super::error::Trouble;
use super::inspect;
use crate::engine::{
    Engine, Fault, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url, Verdict,
    cannot_ask,
};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::line::LINE_MAX;
use crate::name::Name;

/// Locks in Redis that Java's Redisson shares: the same keys, channels and messages.
#[derive(Debug, Clone)]
pub struct Redisson {
    hub: Arc<Hub>,
}

/// Where evictions are noted.
const EVICTIONS: &str = "leasehold_redisson_evictions";

/// How many claims one call of the script ends.
const SOME: usize = 500;

impl Redisson {
    /// The deployment that a URL with `layout=redisson` describes. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a URL that cannot be.
    ///
    /// ```
    /// use leasehold::engine::{Engine, Redisson, Url};
    /// let redisson = Redisson::from_url(&Url::parse("redis://cache?layout=redisson&lock=fair")?)?;
    /// assert_eq!(redisson.location(), "redis://cache:6379/0?layout=redisson");
    /// assert!(Redisson::from_url(&Url::parse("redis://cache")?).is_err());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self> {
        let config = Config::of(url)?;
        let refuse =
            |what: &str| Err(Error::new(ErrorKind::Config, Step::Connect, what).on("redisson"));
        let Some(kinds) = config.redisson else {
            return refuse("this is the URL of another layout: add layout=redisson");
        };
        if matches!(config.shape, Shape::Cluster) {
            return refuse("layout=redisson is for one server or Sentinel, not for a Cluster");
        }
        if config.replicas > 0 {
            return refuse("layout=redisson does not wait for replicas: leave out replicas=N");
        }
        Ok(Self {
            hub: Hub::new(config, kinds),
        })
    }

    /// Leaves a trace of an eviction.
    async fn trace(
        &self,
        name: &Name,
        lost: &[String],
        by: &Identity,
        why: &str,
    ) -> std::result::Result<(), Trouble> {
        let call = inspect::eviction(EVICTIONS, name, ("owners", lost), by, why);
        let reply = self.hub.link().send(&[call]).await?.pop();
        reply.map_or(Ok(()), |reply| reply.ok().map(drop))
    }

    /// Evicts, from any kind of lock; the owners that lost it.
    async fn take_away(
        &self,
        name: &Name,
        fence: Option<Fence>,
    ) -> std::result::Result<Vec<String>, Trouble> {
        let runs = self
            .hub
            .kinds
            .all()
            .map(|kind| Run::evict(kind, name, fence));
        let mut lost = Vec::new();
        loop {
            let before = lost.len();
            for answer in self.hub.run_all(&runs).await? {
                let owners = answer?.into_iter().map(Reply::text);
                lost.extend(owners.collect::<std::result::Result<Vec<_>, _>>()?);
            }
            // One call of the script ends some of many. More than this have come meanwhile.
            if lost.len() - before < SOME || lost.len() > 2 * LINE_MAX {
                return Ok(lost);
            }
        }
    }
}

#[async_trait]
impl Engine for Redisson {
    fn kind(&self) -> &'static str {
        "redisson"
    }

    fn location(&self) -> String {
        let place = self.hub.config.location();
        let place = place.split('?').next().unwrap_or_default();
        format!("{place}?layout=redisson")
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Absent, Broken, Fenced, Kept};
        // Java's holders have no fences but those of RFencedLock, so a resource cannot refuse their late writes.
        let failover = if matches!(self.hub.config.shape, Shape::One) {
            Absent
        } else {
            Broken
        };
        Guarantees::new("redis, layout=redisson", Level::L1)
            .verdict(Kept, [HolderCrash])
            .verdict(Fenced, [Pause, ClockStep])
            .verdict(Broken, [ServerCrash, Partition])
            .verdict(failover, [Failover])
            .unordered()
            .scope("every process and every Redisson client of this server, while the server keeps its memory")
            .dead_holder("when its lease ends")
            .fences(self.hub.kinds.fences())
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let ready = self.hub.link().ready().await;
        ready.map_err(|trouble| trouble.at(Step::Open))?;
        Ok(RedissonSession::open(self.hub.clone(), who, inbox))
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        let views = view::look(&self.hub, query).await;
        views.map_err(|trouble| trouble.at(Step::Inspect))
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        let at_evict = |trouble: Trouble| trouble.at(Step::Evict).of(name);
        let lost = self.take_away(name, fence).await.map_err(at_evict)?;
        if !lost.is_empty() {
            tracing::warn!(%name, %by, why, "evicted");
            for session in self.hub.sessions() {
                session.evicted(&lost, &by.to_string(), why);
            }
            let traced = self.trace(name, &lost, by, why).await;
            traced.map_err(|trouble| at_evict(trouble).perhaps())?;
        }
        Ok(u32::try_from(lost.len()).unwrap_or(u32::MAX))
    }

    async fn ask_to_release(&self, name: &Name, _: Option<Fence>) -> Result<u32> {
        Err(cannot_ask(self.kind(), name))
    }
}
