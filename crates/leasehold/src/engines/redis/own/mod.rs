//! Our own layout: a line per name, kept by one script.

mod answer;
mod calls;
mod mailbox;
mod pushed;
mod script;
mod servers;
mod session;
mod view;

use std::sync::Arc;

use async_trait::async_trait;

#[cfg(fuzzing)]
pub(crate) use self::answer::tests as fuzzed;
use self::script::Run;
pub(super) use self::servers::Servers;
use self::session::RedisSession;
use super::config::{Config, Shape};
use super::error::Trouble;
use super::inspect;
use super::keys::{Bucket, slot};
use super::words::eviction;
use crate::engine::{
    Engine, Fault, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url, Verdict,
    cannot_ask,
};
use crate::error::{Result, Step};
use crate::fence::Fence;
use crate::name::Name;

/// Lines in Redis.
#[derive(Debug, Clone)]
pub struct Redis {
    servers: Arc<Servers>,
}

impl Redis {
    /// The deployment that a URL describes. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a URL that cannot be.
    ///
    /// ```
    /// use leasehold::engine::{Engine, Redis, Url};
    /// let redis = Redis::from_url(&Url::parse("redis://app:hunter2@cache/2")?)?;
    /// assert_eq!(redis.location(), "redis://cache:6379/2?prefix=lh:");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self> {
        Ok(Self {
            servers: Servers::new(Self::config(url)?),
        })
    }

    pub(super) const fn of(servers: Arc<Servers>) -> Self {
        Self { servers }
    }

    fn config(url: &Url) -> Result<Config> {
        let config = Config::of(url)?;
        match config.redisson {
            None => Ok(config),
            Some(_) => {
                let what = "this is the URL of another engine: Redisson";
                Err(Trouble::Config(what.to_owned()).at(Step::Connect))
            }
        }
    }

    /// Leaves a trace of an eviction: a stream, wherever its key belongs.
    async fn trace(
        &self,
        name: &Name,
        fences: &[u64],
        by: &Identity,
        why: &str,
    ) -> std::result::Result<(), Trouble> {
        let key = self.servers.config.keys.evictions();
        let fences: Vec<_> = fences.iter().map(u64::to_string).collect();
        let call = inspect::eviction(&key, name, ("fences", &fences), by, why);
        let link = self.servers.link_of_slot(slot(key.as_bytes())).await?;
        let reply = link.send(&[call]).await?.pop();
        reply.map_or(Ok(()), |reply| reply.ok().map(drop))
    }
}

#[async_trait]
impl Engine for Redis {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn location(&self) -> String {
        self.servers.config.location()
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Absent, Broken, Fenced, Kept};
        let scope = "every process that reaches this server, while the server keeps its memory and its clock";
        let dead = "when its lease ends";
        match (&self.servers.config.shape, self.servers.config.replicas) {
            (Shape::One, 0) => {
                Guarantees::new("redis", Level::L2)
                    .verdict(Kept, [HolderCrash, Partition])
                    .verdict(Fenced, [Pause, ClockStep, ServerCrash])
                    .verdict(Absent, [Failover])
                    .scope(scope)
            }
            (_, 0) => {
                let scope = "every process that reaches these servers, until a failover: it may give a held lock away";
                Guarantees::new("redis with replicas", Level::L1)
                    .verdict(Kept, [HolderCrash])
                    .verdict(Fenced, [Pause, ClockStep, ServerCrash])
                    .verdict(Broken, [Failover, Partition])
                    .scope(scope)
            }
            _ => {
                let scope = "as without replicas=N: a grant is told once N replicas have it, so fewer failovers lose \
                             one, and still some do";
                Guarantees::new("redis, replicas=N", Level::L1)
                    .verdict(Kept, [HolderCrash])
                    .verdict(Fenced, [Pause, ClockStep, ServerCrash])
                    .verdict(Broken, [Failover, Partition])
                    .scope(scope)
            }
        }
        .dead_holder(dead)
        .fences("microseconds of the server's clock, and always more than the last")
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let ready = self.servers.ready().await;
        ready.map_err(|trouble| trouble.at(Step::Open))?;
        let session = RedisSession::open(self.servers.clone(), who, inbox);
        Ok(session)
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        let views = view::look(&self.servers, query).await;
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
        let told = eviction(&by.to_string(), why);
        let run = Run::evict(&self.servers.config.keys, name, fence, &told);
        let answered = self.servers.run(Bucket::of(name), &run).await;
        let fences = answered.and_then(answer::evicted).map_err(at_evict)?;
        if !fences.is_empty() {
            tracing::warn!(%name, %by, why, "evicted");
            let traced = self.trace(name, &fences, by, why).await;
            traced.map_err(|trouble| at_evict(trouble).perhaps())?;
        }
        Ok(u32::try_from(fences.len()).unwrap_or(u32::MAX))
    }

    async fn ask_to_release(&self, name: &Name, _: Option<Fence>) -> Result<u32> {
        Err(cannot_ask(self.kind(), name))
    }
}
