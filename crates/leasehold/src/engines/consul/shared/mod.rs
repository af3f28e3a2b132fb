#![doc = include_str!("docs.md")]

mod hall;
mod layout;
mod mutex;
mod permits;
mod room;
mod server;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;

use self::hall::Hall;
pub(super) use self::layout::Layout;
use self::server::SharedServer;
use super::client::Http;
use super::config::Config;
use super::server::ConsulServer;
use crate::engine::{
    Engine, Fault, Guarantees, Identity, Inbox, Level, LineView, Query, Session, Url, Verdict,
    cannot_ask,
};
use crate::engines::ordered::{Deployment, OrderedSession, Server, inspect};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::name::Name;

/// Locks in Consul that `consul lock` and Go's `api.Lock` and `api.Semaphore` share: the same keys, flags and sessions.
#[derive(Debug, Clone)]
pub struct ConsulLocks {
    datacenter: Arc<Datacenter>,
}

#[derive(Debug)]
struct Datacenter {
    http: Arc<Http>,
    layout: Layout,
    floor: Arc<AtomicU64>,
    hall: Arc<Hall>,
}

impl ConsulLocks {
    /// The datacenter of a URL with `layout=consul`. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a URL that cannot be.
    ///
    /// ```
    /// use leasehold::engine::{ConsulLocks, Engine, Url};
    /// let engine = ConsulLocks::from_url(&Url::parse("consul://localhost?layout=consul")?)?;
    /// assert_eq!(engine.location(), "consul://localhost:8500/?layout=consul");
    /// assert!(ConsulLocks::from_url(&Url::parse("consul://localhost")?).is_err());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn from_url(url: &Url) -> Result<Self> {
        Self::with(Config::from_url(url)?)
    }

    /// The lease of the session that is opened first, before a claim has named its own; 10 s unless set.
    ///
    /// ```
    /// use leasehold::engine::{ConsulLocks, Url};
    /// let engine = ConsulLocks::from_url(&Url::parse("consul://localhost?layout=consul")?)?;
    /// let engine = engine.lease(std::time::Duration::from_secs(30));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        let Datacenter {
            http,
            layout,
            floor,
            hall,
        } = &*self.datacenter;
        let mut config = http.config.clone();
        config.lease = lease;
        let datacenter = Datacenter {
            http: Arc::new(Http::new(config)),
            layout: layout.clone(),
            floor: floor.clone(),
            hall: hall.clone(),
        };
        Self {
            datacenter: Arc::new(datacenter),
        }
    }

    pub(super) fn with(config: Config) -> Result<Self> {
        let Some(layout) = config.shared.clone() else {
            let what = "this is the URL of another layout: add layout=consul";
            return Err(Error::new(ErrorKind::Config, Step::Connect, what).on("consul"));
        };
        let datacenter = Datacenter {
            http: Arc::new(Http::new(config)),
            layout,
            floor: Arc::default(),
            hall: Hall::new(),
        };
        Ok(Self {
            datacenter: Arc::new(datacenter),
        })
    }

    /// What to look with: no session.
    fn desk(&self) -> Arc<SharedServer> {
        let Datacenter {
            http,
            layout,
            floor,
            hall,
        } = &*self.datacenter;
        SharedServer::with(ConsulServer::desk(http, floor), layout.clone(), hall, floor)
    }
}

#[async_trait]
impl Deployment for Datacenter {
    type Server = SharedServer;

    fn lease(&self) -> Duration {
        self.http.config.lease
    }

    async fn open(&self, lease: Duration, inbox: Inbox) -> Result<Arc<SharedServer>> {
        let shared = (&self.hall, &self.floor);
        SharedServer::open(&self.http, self.layout.clone(), lease, shared, inbox).await
    }
}

#[async_trait]
impl Engine for ConsulLocks {
    fn kind(&self) -> &'static str {
        SharedServer::KIND
    }

    fn location(&self) -> String {
        self.datacenter.http.config.location()
    }

    fn guarantees(&self) -> Guarantees {
        use Fault::{ClockStep, Failover, HolderCrash, Partition, Pause, ServerCrash};
        use Verdict::{Fenced, Kept};
        // Holders of other programs have no fences, so a resource cannot refuse their late writes.
        let (engine, partition) = match self.datacenter.http.config.serf {
            false => ("consul, layout=consul", Kept),
            true => ("consul, layout=consul, checks=serf", Fenced),
        };
        Guarantees::new(engine, Level::L1)
            .verdict(Kept, [HolderCrash, ClockStep, ServerCrash, Failover])
            .verdict(Fenced, [Pause])
            .verdict(partition, [Partition])
            .unordered()
            .without_readers()
            .scope("every process, `consul lock` and Go's api.Lock and api.Semaphore in one datacenter")
            .dead_holder("when its Consul session ends, and the lock-delay of that session after it")
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

    async fn ask_to_release(&self, name: &Name, _: Option<Fence>) -> Result<u32> {
        Err(cannot_ask(self.kind(), name))
    }
}
