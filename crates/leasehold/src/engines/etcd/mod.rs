#![doc = include_str!("docs.md")]

mod client;
mod config;
mod lease;
mod make;
mod names;
mod server;
mod session;
mod txn;

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio_rustls::rustls::ClientConfig;

use self::client::Client;
use self::config::Config;
#[cfg(fuzzing)]
pub(crate) use self::names::tests as fuzzed;
use self::session::EtcdServer;
use super::ordered::{Deployment, Fail, OrderedSession, Server, inspect};
use crate::engine::{
    Engine, Event, Fault, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url,
    Verdict,
};
use crate::engines::tls::Tls;
use crate::error::{Result, Step};
use crate::fence::Fence;
use crate::name::Name;
use crate::sync::Shared;

/// Lines in an etcd cluster, in the layout of etcd's concurrency package.
#[derive(Debug, Clone)]
pub struct Etcd {
    config: Config,
    /// The session that was opened last, for inspections and evictions.
    last: Arc<Shared<Weak<EtcdServer>>>,
}

/// The engine of an `etcd:` URL.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(Etcd::from_url(url)?))
}

impl Etcd {
    /// The cluster of a URL. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) if the URL has no host or an option that is not known.
    ///
    /// ```
    /// use leasehold::engine::{Engine, Etcd, Url};
    /// let engine = Etcd::from_url(&Url::parse("etcd://h1,h2:2379?prefix=locks/")?)?;
    /// assert_eq!(engine.location(), "etcd://h1:2379,h2:2379?prefix=locks/");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self> {
        let config = Config::from_url(url)?;
        Ok(Self {
            config,
            last: Arc::default(),
        })
    }

    /// TLS on every connection, by this configuration of rustls 0.23, in place of what the URL says of TLS.
    ///
    /// ```no_run
    /// use leasehold::engine::{Etcd, Url};
    /// # fn config() -> std::sync::Arc<tokio_rustls::rustls::ClientConfig> { todo!() }
    /// let engine = Etcd::from_url(&Url::parse("etcd://h1")?)?.tls(config());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn tls(mut self, config: impl Into<Arc<ClientConfig>>) -> Self {
        self.config.tls = Some(Tls::from(config.into()).speaking(b"h2"));
        self.last = Arc::default();
        self
    }

    /// The lease of the session that is opened first, before a claim has named its own; 10 s unless set.
    ///
    /// ```
    /// use leasehold::engine::{Etcd, Url};
    /// let engine = Etcd::from_url(&Url::parse("etcd://h1")?)?;
    /// let engine = engine.lease(std::time::Duration::from_secs(3));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.config.lease = lease;
        self.last = Arc::default();
        self
    }

    /// A session to look with: the last one of a client, or one for this call, which is closed after it.
    async fn desk(&self) -> Result<Arc<EtcdServer>> {
        let last = self.last.lock().upgrade();
        match last.filter(|server| !server.over().is_cancelled()) {
            Some(server) => Ok(server),
            None => {
                let lease = self.config.lease;
                let client = connect(&self.config, lease, None).await?;
                EtcdServer::open(&self.config, client, lease).await
            }
        }
    }
}

async fn connect(config: &Config, lease: Duration, inbox: Option<Inbox>) -> Result<Client> {
    let on_down = move || {
        if let Some(inbox) = &inbox {
            inbox.deliver(Event::Unsure);
        }
    };
    let client = Client::connect(config, lease, on_down).await;
    client.map_err(|trouble| Fail::from(trouble).error::<EtcdServer>(Step::Open))
}

/// A cluster as one session sees it: with one client for all of its leases.
#[derive(Debug)]
struct Cluster {
    config: Config,
    client: tokio::sync::Mutex<Option<Client>>,
    last: Arc<Shared<Weak<EtcdServer>>>,
}

#[async_trait]
impl Deployment for Cluster {
    type Server = EtcdServer;

    fn lease(&self) -> Duration {
        self.config.lease
    }

    async fn open(&self, lease: Duration, inbox: Inbox) -> Result<Arc<EtcdServer>> {
        let mut client = self.client.lock().await;
        let alive = client
            .clone()
            .filter(|client| !client.ended().is_cancelled());
        let used = match alive {
            Some(alive) => alive,
            None => connect(&self.config, lease, Some(inbox)).await?,
        };
        *client = Some(used.clone());
        let server = EtcdServer::open(&self.config, used, lease).await?;
        *self.last.lock() = Arc::downgrade(&server);
        Ok(server)
    }
}

#[async_trait]
impl Engine for Etcd {
    fn kind(&self) -> &'static str {
        EtcdServer::KIND
    }

    fn location(&self) -> String {
        self.config.location()
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Fenced, Kept};
        Guarantees::new(EtcdServer::KIND, Level::L2)
            .verdict(Kept, [HolderCrash, ClockStep, ServerCrash, Failover, Partition])
            .verdict(Fenced, [Pause])
            .scope("the clients of one cluster, `etcdctl lock` and Go's among them")
            .dead_holder("when its etcd lease ends: 4/3 of the lease in whole seconds, at least 1.5 election timeouts")
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        let cluster = Arc::new(Cluster {
            config: self.config.clone(),
            client: tokio::sync::Mutex::default(),
            last: self.last.clone(),
        });
        let session = OrderedSession::open(cluster, who, inbox).await?;
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
