//! The bed of an engine: everything that the shared tests need of it.

use std::fmt;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::engine::{Claim, Engine, Session, Standing};
use leasehold::{Client, ConnectOptions, Result};
use leasehold_testkit::process::Process;
use leasehold_testkit::proxy::Proxy;

/// The URL of an engine whose servers are reached at these ports.
pub(crate) type UrlAt = dyn Fn(&[u16]) -> String + Send + Sync;

/// One deployment of one engine, with what the shared tests ask of it.
pub struct Bed {
    /// The program of the test crate that locks on command.
    pub locker: &'static str,
    /// Where its servers listen; none without a network.
    pub ports: Vec<u16>,
    /// Its URL, by its own ports or by those of proxies before them.
    pub url: Box<UrlAt>,
    /// A lease that the engine keeps exactly, and that a busy machine renews in time.
    pub lease: Duration,
    /// How far apart calls around the end of a lease are; a fortieth of what is looked at.
    pub step: Duration,
    /// Whether the lock of a process that is killed passes on at once, without waiting for the end of the lease.
    pub death_is_noticed: bool,
    /// Whether the others can go on now that a process was stopped: it may have been inside what only one can do at a time.
    pub stands_aside: Box<dyn Fn() -> bool + Send + Sync>,
    /// Stored things that would stay for ever.
    pub endless: Box<dyn Fn() -> Vec<String> + Send + Sync>,
}

impl Bed {
    /// A bed of one engine: a lease of 1.5 s, calls a quarter of a millisecond apart.
    pub fn new(
        locker: &'static str,
        ports: &[u16],
        url: impl Fn(&[u16]) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            locker,
            ports: ports.to_vec(),
            url: Box::new(url),
            lease: Duration::from_millis(1_500),
            step: Duration::from_micros(250),
            death_is_noticed: false,
            stands_aside: Box::new(|| true),
            endless: Box::new(Vec::new),
        }
    }

    /// Its URL without anything between.
    pub fn direct(&self) -> String {
        (self.url)(&self.ports)
    }

    /// A client with nothing between.
    ///
    /// # Panics
    /// If it cannot connect.
    pub async fn client(&self) -> Client {
        self.connect(&self.direct()).await.expect("connected")
    }

    /// A client by a URL of this bed, with its lease.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn connect(&self, url: &str) -> Result<Client> {
        ConnectOptions::new().lease(self.lease).connect(url).await
    }

    /// A client of an engine of this bed that is there already.
    ///
    /// # Panics
    /// If it cannot connect.
    pub(crate) async fn open(&self, engine: &Arc<dyn Engine>) -> Client {
        // Longer than a lock may take to pass on: a call that is slow is judged by that, and not by its own lease.
        let lease = self.lease.max(Duration::from_secs(60));
        let opened = ConnectOptions::new()
            .lease(lease)
            .open(engine.clone())
            .await;
        opened.expect("a session")
    }

    /// A proxy before each of its servers, and the URL by them.
    pub fn proxies(&self) -> (Vec<Proxy>, String) {
        let proxies: Vec<_> = self.ports.iter().map(|port| Proxy::before(*port)).collect();
        let ports: Vec<_> = proxies.iter().map(|proxy| proxy.port).collect();
        let url = (self.url)(&ports);
        (proxies, url)
    }

    /// A process that locks on command.
    ///
    /// # Panics
    /// If it cannot connect.
    pub fn locker(&self, url: &str) -> Process {
        let mut command = Command::new(self.locker);
        let lease = self.lease.as_millis().to_string();
        let locker = Process::start(command.arg(url).arg(lease));
        assert_eq!(locker.hear(), "ready");
        locker
    }
}

impl fmt::Debug for Bed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bed({:?})", self.ports)
    }
}

/// One heartbeat of one claim; none if it was not named.
pub(crate) async fn beat(session: &dyn Session, claim: &Arc<Claim>) -> Result<Option<Standing>> {
    let told = Mutex::new(None);
    let heard = |_: &Claim, standing| *told.lock().expect("no panic") = Some(standing);
    session
        .heartbeat(std::slice::from_ref(claim), &heard)
        .await?;
    Ok(told.into_inner().expect("no panic"))
}
