//! A deployment described in Rust: what a URL cannot hold.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ClientConfig;

use super::client::{Address, Credentials, Login};
use super::config::{Config, Shape};
use super::error::Trouble;
use super::own::{Redis, Servers};
use crate::engine::Host;
use crate::engines::tls::Tls;
use crate::error::{Result, Step};

/// A deployment of Redis, described in Rust instead of a URL: for a login that changes, and a TLS configuration of your own.
/// What is not set is as in a URL without options.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::sync::{Arc, RwLock};
/// use leasehold::engine::RedisOptions;
///
/// let token = Arc::new(RwLock::new("of today".to_owned())); // another task replaces it in time
/// let engine = RedisOptions::server("cache.example.com", 6379)
///     .login(move || ("app".to_owned(), token.read().unwrap().clone()))
///     .prefix("shop:")
///     .engine()?;
/// let connecting = leasehold::ConnectOptions::new().open(Arc::new(engine));
/// # drop(connecting);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing until an engine is made of them"]
pub struct RedisOptions(Config);

impl RedisOptions {
    /// One server.
    pub fn server(host: impl Into<String>, port: u16) -> Self {
        Self(Config::new(Shape::One, vec![tcp((host, port))]))
    }

    /// One server, on a Unix socket.
    ///
    /// ```
    /// use leasehold::engine::{Engine, RedisOptions};
    /// let engine = RedisOptions::unix("/run/redis.sock").engine()?;
    /// assert_eq!(engine.location(), "redis:///run/redis.sock/0?prefix=lh:");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self(Config::new(Shape::One, vec![Address::Unix(path.into())]))
    }

    /// The members of a cluster; a few of them do.
    ///
    /// ```
    /// use leasehold::engine::{Engine, RedisOptions};
    /// let engine = RedisOptions::cluster([("b", 6379), ("a", 6379)]).engine()?;
    /// assert_eq!(engine.location(), "redis+cluster://a:6379,b:6379?prefix=lh:");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn cluster<H: Into<String>>(members: impl IntoIterator<Item = (H, u16)>) -> Self {
        let hosts = members.into_iter().map(tcp).collect();
        Self(Config::new(Shape::Cluster, hosts))
    }

    /// The server that these Sentinels call by this name.
    ///
    /// ```
    /// use leasehold::engine::{Engine, RedisOptions};
    /// let engine = RedisOptions::sentinel("main", [("s1", 26379), ("s2", 26379)]).engine()?;
    /// assert!(engine.location().starts_with("redis+sentinel://s1:26379,s2:26379/main"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn sentinel<H: Into<String>>(
        master: impl Into<String>,
        sentinels: impl IntoIterator<Item = (H, u16)>,
    ) -> Self {
        let shape = Shape::Sentinel {
            master: master.into(),
            login: Credentials::Fixed(Login::default()),
        };
        Self(Config::new(shape, sentinels.into_iter().map(tcp).collect()))
    }

    /// The user (`default` if there are none) and the password: asked before each connection, so they may change.
    pub fn login(mut self, login: impl Fn() -> (String, String) + Send + Sync + 'static) -> Self {
        self.0.login = Credentials::Changing(Arc::new(login));
        self
    }

    /// The user and the password at Sentinels, which have a login of their own.
    pub fn sentinel_login(
        mut self,
        login: impl Fn() -> (String, String) + Send + Sync + 'static,
    ) -> Self {
        if let Shape::Sentinel { login: old, .. } = &mut self.0.shape {
            *old = Credentials::Changing(Arc::new(login));
        }
        self
    }

    /// TLS on every connection, by this configuration of rustls 0.23: authorities, certificates, providers.
    pub fn tls(mut self, config: impl Into<Arc<ClientConfig>>) -> Self {
        self.0.tls = Some(Tls::from(config.into()));
        self
    }

    /// The number of the database; 0 unless set.
    pub const fn database(mut self, number: i64) -> Self {
        self.0.database = number;
        self
    }

    /// What every key begins with; `lh:` unless set.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.0.keys.prefix = prefix.into();
        self
    }

    /// How long one step on the network may take; 2 s unless set, and at least 10 ms.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.0.patience = timeout.max(Duration::from_millis(10));
        self
    }

    /// How many replicas must have a grant before it is told; none unless set.
    pub const fn replicas(mut self, replicas: u32) -> Self {
        self.0.replicas = replicas;
        self
    }

    /// The engine. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a deployment that cannot be.
    ///
    /// ```
    /// use leasehold::{ErrorKind, engine::RedisOptions};
    /// let error = RedisOptions::server("h", 6379).prefix("{x}").engine().unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Config);
    /// ```
    pub fn engine(self) -> Result<Redis> {
        if self.0.hosts.is_empty() {
            let trouble = Trouble::Config("there is no host: name one".to_owned());
            return Err(trouble.at(Step::Connect));
        }
        let checked = self.0.check().map_err(|trouble| trouble.at(Step::Connect));
        checked.map(|config| Redis::of(Servers::new(config)))
    }
}

fn tcp((name, port): (impl Into<String>, u16)) -> Address {
    let name = name.into();
    Address::Tcp(Host { name, port })
}
