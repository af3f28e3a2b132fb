#![doc = include_str!("docs.md")]

mod config;
mod ground;
mod layout;
mod link;
mod node;
mod note;
mod permits;
mod place;
mod rest;
mod rule;
mod seat;
mod session;
mod taking;
mod ticket;
mod trace;
mod view;
mod wire;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;

use self::config::Config;
use self::link::{Link, failed};
use self::node::{EVICTED, REVOKE, decode, encode};
use self::session::ZkSession;
use self::trace::Trace;
use self::view::Found;
use self::wire::Trouble;
use crate::engine::{
    Clock, Engine, FENCE_BLOCK, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url,
    Verdict,
};
use crate::error::{Result, Step};
use crate::fence::Fence;
use crate::name::Name;
use crate::sync::Shared;

/// Lines in a ZooKeeper ensemble, in Curator's layout.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    world: Arc<World>,
}

/// Everything the sessions of one engine share.
#[derive(Debug)]
struct World {
    config: Config,
    clock: Clock,
    /// The ZooKeeper session last opened, for looking and evicting; who opened it may end it.
    last: Shared<Weak<Link>>,
    /// One of our own, where there is none.
    desk: tokio::sync::Mutex<Option<Arc<Link>>>,
}

/// The engine of a `zookeeper:` URL.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(ZooKeeper::at(url)?))
}

impl ZooKeeper {
    /// The ensemble a URL names. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the URL has no host or an option that there is not.
    ///
    /// ```
    /// use leasehold::engine::{Engine, Url, ZooKeeper};
    /// let engine = ZooKeeper::at(&Url::parse("zookeeper://h1:2181,h2:2181/locks")?)?;
    /// assert_eq!(engine.location(), "zookeeper://h1:2181,h2:2181/locks");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn at(url: &Url) -> Result<Self> {
        let config = Config::from_url(url)?;
        Ok(Self::with(config))
    }

    /// Opens sessions for this lease before a claim has said its own; 10 s unless set.
    ///
    /// ```
    /// use leasehold::engine::{Url, ZooKeeper};
    /// let engine = ZooKeeper::at(&Url::parse("zookeeper://h1")?)?;
    /// let engine = engine.lease(std::time::Duration::from_secs(3));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let mut config = self.world.config.clone();
        config.lease = lease;
        Self::with(config)
    }

    fn with(config: Config) -> Self {
        Self {
            world: Arc::new(World {
                config,
                clock: Clock::boot(),
                last: Shared::default(),
                desk: tokio::sync::Mutex::default(),
            }),
        }
    }
}

impl World {
    fn remember(&self, link: &Arc<Link>) {
        *self.last.lock() = Arc::downgrade(link);
    }

    /// A ZooKeeper session to look with: one that is there, or one of our own.
    async fn desk(&self) -> Result<Arc<Link>> {
        let alive = |link: &Arc<Link>| !link.over.is_cancelled();
        if let Some(link) = self.last.lock().upgrade().filter(alive) {
            return Ok(link);
        }
        let mut desk = self.desk.lock().await;
        if let Some(link) = desk.clone().filter(alive) {
            return Ok(link);
        }
        let link = Link::open(&self.config, self.config.lease, None).await?;
        *desk = Some(link.clone());
        Ok(link)
    }

    fn base(&self, name: &Name) -> String {
        format!("{}/{}", self.config.root(), encode(name))
    }

    /// Who holds a name, or holds it with this fence.
    async fn holders(&self, link: &Link, name: &Name, fence: Option<Fence>) -> Result<Vec<Found>> {
        let meant = fence.map(|fence| fence.get() / u64::from(FENCE_BLOCK));
        let mut found = view::look(link, &self.base(name)).await?;
        found.retain(|found| {
            found.holds && meant.is_none_or(|czxid| u64::try_from(found.czxid) == Ok(czxid))
        });
        Ok(found)
    }

    async fn names(&self, link: &Link) -> Result<Vec<Name>> {
        let root = match self.config.root() {
            "" => "/",
            root => root,
        };
        let listed = view::list(link, root).await;
        let nodes = listed.map_err(|trouble| failed(&trouble, Step::Inspect))?;
        let mut names: Vec<_> = nodes.iter().filter_map(|node| decode(node)).collect();
        names.sort();
        Ok(names)
    }
}

#[async_trait]
impl Engine for ZooKeeper {
    fn kind(&self) -> &'static str {
        "zookeeper"
    }

    fn location(&self) -> String {
        self.world.config.location()
    }

    fn guarantees(&self) -> Guarantees {
        use Verdict::{Fenced, Kept};
        Guarantees::new(
            "zookeeper",
            Level::L2,
            [Kept, Fenced, Kept, Kept, Kept, Kept],
        )
        .scope("the clients of one ensemble, Curator's among them")
        .dead_holder("when its ZooKeeper session ends: 4/3 of the lease, and up to a tick")
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let session = ZkSession::open(self.world.clone(), who.clone(), inbox).await?;
        Ok(Arc::new(session))
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        let link = self.world.desk().await?;
        let names = match &query.name {
            Some(name) => vec![name.clone()],
            None => self.world.names(&link).await?,
        };
        let mut lines = Vec::new();
        for name in names {
            let found = view::look(&link, &self.world.base(&name)).await?;
            if !found.is_empty() {
                let clock = &self.world.clock;
                let claims = found.iter().map(|found| found.view(clock, link.lease));
                lines.push(LineView::new(name, claims));
            }
        }
        Ok(lines)
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        let link = self.world.desk().await?;
        let found = self.world.holders(&link, name, fence).await?;
        if found.is_empty() {
            return Ok(0);
        }
        let trace = Trace {
            czxids: found.iter().map(|found| found.czxid).collect(),
            by: by.to_string(),
            why: why.to_owned(),
        };
        tracing::warn!(%name, %by, why, "evicted");
        let evicted = async {
            let parent = format!("{}/{EVICTED}", self.world.config.root());
            link.mkdir(&parent).await?;
            let (path, data) = (format!("{parent}/{}", encode(name)), trace.write());
            // Written first: whoever finds its node gone finds the reason.
            link.again(|| link.wire.put(&path, &data)).await?;
            let mut evicted = 0;
            for found in &found {
                let mut there = false;
                for path in &found.paths {
                    there |= link.delete(path).await?;
                }
                evicted += u32::from(there);
            }
            Ok(evicted)
        };
        evicted
            .await
            .map_err(|trouble| failed(&trouble, Step::Evict))
    }
    async fn ask_to_release(&self, name: &Name, fence: Option<Fence>) -> Result<u32> {
        let link = self.world.desk().await?;
        let mut asked = 0;
        for found in self.world.holders(&link, name, fence).await? {
            let node = &found.paths[0];
            match link.again(|| link.wire.write(node, REVOKE)).await {
                Ok(()) => asked += 1,
                Err(Trouble::NoNode) => {}
                Err(trouble) => return Err(failed(&trouble, Step::Ask)),
            }
        }
        Ok(asked)
    }
}
