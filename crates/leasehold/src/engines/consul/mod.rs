#![doc = include_str!("docs.md")]

mod client;
mod config;
mod follow;
mod gate;
mod keys;
mod names;
mod server;
mod session;
mod shared;
mod stored;
mod views;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use tokio_rustls::rustls::ClientConfig;

use self::client::Http;
#[cfg(fuzzing)]
pub(crate) use self::client::kv::tests as fuzzed;
use self::config::Config;
use self::server::ConsulServer;
pub use self::shared::ConsulLocks;
use super::ordered::{Deployment, OrderedSession, Server, inspect};
use crate::engine::{
    Engine, Fault, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url, Verdict,
};
use crate::engines::tls::Tls;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::name::Name;

/// Lines in the keys of a Consul datacenter.
#[derive(Debug, Clone)]
pub struct Consul {
    datacenter: Arc<Datacenter>,
}

#[derive(Debug)]
struct Datacenter {
    http: Arc<Http>,
    /// The server's shortest TTL, in milliseconds, once it has said it.
    floor: Arc<AtomicU64>,
}

/// The engine of a `consul:` URL.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    let config = Config::from_url(url)?;
    Ok(match config.shared {
        None => Arc::new(Consul::with(config)),
        Some(_) => Arc::new(ConsulLocks::with(config)?),
    })
}

impl Consul {
    /// The datacenter of a URL. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the URL has an option that is not known, or a file that it names
    /// cannot be read.
    ///
    /// ```
    /// use leasehold::engine::{Consul, Engine, Url};
    /// let engine = Consul::from_url(&Url::parse("consul://localhost:8500/locks")?)?;
    /// assert_eq!(engine.location(), "consul://localhost:8500/locks");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self> {
        let config = Config::from_url(url)?;
        match config.shared {
            None => Ok(Self::with(config)),
            Some(_) => {
                let what = "this is the URL of Consul's own layout: leave out layout=consul";
                Err(Error::new(ErrorKind::Config, Step::Connect, what).on("consul"))
            }
        }
    }

    /// TLS on every connection, by this configuration of rustls 0.23, in place of what the URL says of TLS.
    ///
    /// ```no_run
    /// use leasehold::engine::{Consul, Url};
    /// # fn config() -> std::sync::Arc<tokio_rustls::rustls::ClientConfig> { todo!() }
    /// let engine = Consul::from_url(&Url::parse("consul://localhost")?)?.tls(config());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn tls(self, config: impl Into<Arc<ClientConfig>>) -> Self {
        let mut own = self.datacenter.http.config.clone();
        own.tls = Some(Tls::from(config.into()));
        Self::with(own)
    }

    /// The lease of the session that is opened first, before a claim has named its own; 10 s unless set.
    ///
    /// ```
    /// use leasehold::engine::{Consul, Url};
    /// let engine = Consul::from_url(&Url::parse("consul://localhost")?)?;
    /// let engine = engine.lease(std::time::Duration::from_secs(30));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let mut config = self.datacenter.http.config.clone();
        config.lease = lease;
        Self::with(config)
    }

    fn with(config: Config) -> Self {
        let datacenter = Arc::new(Datacenter {
            http: Arc::new(Http::new(config)),
            floor: Arc::default(),
        });
        Self { datacenter }
    }

    /// What to look with. It has no session: one that a client closes meanwhile would fail the call.
    fn desk(&self) -> Arc<ConsulServer> {
        ConsulServer::desk(&self.datacenter.http, &self.datacenter.floor)
    }
}

#[async_trait]
impl Deployment for Datacenter {
    type Server = ConsulServer;

    fn lease(&self) -> Duration {
        self.http.config.lease
    }

    async fn open(&self, lease: Duration, inbox: Inbox) -> Result<Arc<ConsulServer>> {
        ConsulServer::open(&self.http, lease, &self.floor, inbox).await
    }
}

#[async_trait]
impl Engine for Consul {
    fn kind(&self) -> &'static str {
        ConsulServer::KIND
    }

    fn location(&self) -> String {
        self.datacenter.http.config.location()
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Fenced, Kept};
        let promised = |engine, level, partition, scope| {
            Guarantees::new(engine, level)
                .verdict(Kept, [HolderCrash, ClockStep, ServerCrash, Failover])
                .verdict(Fenced, [Pause])
                .verdict(partition, [Partition])
                .scope(scope)
        };
        let promised = match self.datacenter.http.config.serf {
            false => promised(
                ConsulServer::KIND,
                Level::L2,
                Kept,
                "the clients of one datacenter with this prefix",
            ),
            // Gossip ends the sessions of a node that it does not hear, while the holder there runs on.
            true => promised(
                "consul, checks=serf",
                Level::L1,
                Fenced,
                "the clients of one datacenter with this prefix, while gossip hears the nodes of their agents",
            ),
        };
        promised.dead_holder(
            "when its Consul session ends: twice the lease, of which 10 s is the shortest",
        )
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let session = OrderedSession::open(self.datacenter.clone(), who, inbox).await?;
        Ok(Arc::new(session))
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        inspect::inspect(&*self.desk(), query).await
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        inspect::evict(&*self.desk(), name, fence, by, why).await
    }

    async fn ask_to_release(&self, name: &Name, fence: Option<Fence>) -> Result<u32> {
        inspect::ask_to_release(&*self.desk(), name, fence).await
    }
}
