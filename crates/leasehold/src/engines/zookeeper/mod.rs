#![doc = include_str!("docs.md")]

mod client;
mod config;
mod names;
mod server;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio_rustls::rustls::ClientConfig;

use self::config::Config;
use self::server::ZkServer;
#[cfg(fuzzing)]
pub(crate) use self::{client::fuzzed as jute, names::tests as node};
use super::ordered::{Deployment, OrderedSession, Server, inspect};
use crate::engine::{
    Engine, Fault, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url, Verdict,
};
use crate::engines::tls::Tls;
use crate::error::Result;
use crate::fence::Fence;
use crate::name::Name;
use crate::sync::Shared;

/// Lines in a ZooKeeper ensemble, in Curator's layout.
#[derive(Debug, Clone)]
pub struct ZooKeeper {
    ensemble: Arc<Ensemble>,
}

#[derive(Debug)]
struct Ensemble {
    config: Config,
    /// The ZooKeeper session that was opened last, for inspections and evictions.
    last: Shared<Weak<ZkServer>>,
}

/// The engine of a `zookeeper:` URL.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(ZooKeeper::from_url(url)?))
}

impl ZooKeeper {
    /// The ensemble of a URL. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the URL has no host or an option that is not known.
    ///
    /// ```
    /// use leasehold::engine::{Engine, Url, ZooKeeper};
    /// let engine = ZooKeeper::from_url(&Url::parse("zookeeper://h1:2181,h2:2181/locks")?)?;
    /// assert_eq!(engine.location(), "zookeeper://h1:2181,h2:2181/locks");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self> {
        let config = Config::from_url(url)?;
        Ok(Self::with(config))
    }

    /// TLS on every connection, by this configuration of rustls 0.23, in place of what the URL says of TLS.
    ///
    /// ```no_run
    /// use leasehold::engine::{ZooKeeper, Url};
    /// # fn config() -> std::sync::Arc<tokio_rustls::rustls::ClientConfig> { todo!() }
    /// let engine = ZooKeeper::from_url(&Url::parse("zookeeper://h1")?)?.tls(config());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn tls(self, config: impl Into<Arc<ClientConfig>>) -> Self {
        let mut own = self.ensemble.config.clone();
        own.tls = Some(Tls::from(config.into()));
        Self::with(own)
    }

    /// The lease of the session that is opened first, before a claim has named its own; 10 s unless set.
    ///
    /// ```
    /// use leasehold::engine::{Url, ZooKeeper};
    /// let engine = ZooKeeper::from_url(&Url::parse("zookeeper://h1")?)?;
    /// let engine = engine.lease(std::time::Duration::from_secs(3));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let mut config = self.ensemble.config.clone();
        config.lease = lease;
        Self::with(config)
    }

    fn with(config: Config) -> Self {
        let last = Shared::default();
        let ensemble = Arc::new(Ensemble { config, last });
        Self { ensemble }
    }

    /// A session to look with: the last one of a client, or one for this call, which is closed after it.
    async fn desk(&self) -> Result<Arc<ZkServer>> {
        let last = self.ensemble.last.lock().upgrade();
        match last.filter(|server| !server.over().is_cancelled()) {
            Some(server) => Ok(server),
            None => {
                let config = &self.ensemble.config;
                ZkServer::open(config, config.lease, None).await
            }
        }
    }
}

#[async_trait]
impl Deployment for Ensemble {
    type Server = ZkServer;

    fn lease(&self) -> Duration {
        self.config.lease
    }

    async fn open(&self, lease: Duration, inbox: Inbox) -> Result<Arc<ZkServer>> {
        let server = ZkServer::open(&self.config, lease, Some(inbox)).await?;
        *self.last.lock() = Arc::downgrade(&server);
        Ok(server)
    }
}

#[async_trait]
impl Engine for ZooKeeper {
    fn kind(&self) -> &'static str {
        ZkServer::KIND
    }

    fn location(&self) -> String {
        self.ensemble.config.location()
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Fenced, Kept};
        Guarantees::new(ZkServer::KIND, Level::L2)
            .verdict(
                Kept,
                [HolderCrash, ClockStep, ServerCrash, Failover, Partition],
            )
            .verdict(Fenced, [Pause])
            .scope("the clients of one ensemble, Curator's among them")
            .dead_holder("when its ZooKeeper session ends: 4/3 of the lease, and up to two ticks")
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let session = OrderedSession::open(self.ensemble.clone(), who, inbox).await?;
        Ok(Arc::new(session))
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        inspect::inspect(&*self.desk().await?, query).await
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        inspect::evict(&*self.desk().await?, name, fence, by, why).await
    }

    async fn ask_to_release(&self, name: &Name, fence: Option<Fence>) -> Result<u32> {
        inspect::ask_to_release(&*self.desk().await?, name, fence).await
    }
}
