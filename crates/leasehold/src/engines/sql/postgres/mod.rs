//! PostgreSQL: where it is, and how it is reached.

mod bounded;
mod wire;

use async_trait::async_trait;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

use self::wire::Tls;
use super::dialect::Dialect;
use super::tls::Security;
use super::wire::{Connect, Heard, Link, Listening, Rows, Trouble, What};
use crate::engine::{Host, Params, Url};
use crate::error::{Error, ErrorKind, Result, Step};

/// A server.
pub(super) struct Server {
    config: Config,
    hosts: Vec<Host>,
    tls: Option<Tls>,
    /// Hosts and ports.
    shown: String,
}

impl Server {
    pub(super) fn at(url: &Url, params: &mut Params, relaxed: bool) -> Result<Self> {
        let bad = |what: String| Error::new(ErrorKind::Config, Step::Connect, what).on("postgres");
        let mut config = Config::new();
        let hosts = url.addresses(5432)?;
        let shown = hosts
            .iter()
            .map(|host| format!("{}:{}", host.name, host.port));
        let shown: Vec<_> = shown.collect();
        if url.hosts().is_empty() {
            return Err(bad("write postgres://USER@HOST/DATABASE".to_owned()));
        }
        let Some(user) = url.user() else {
            return Err(bad(
                "the URL names no user: postgres://USER@HOST/DATABASE".to_owned()
            ));
        };
        let database = url.path().trim_start_matches('/');
        let _ = config.user(user).application_name("leasehold");
        let _ = config.dbname(if database.is_empty() { user } else { database });
        if let Some(password) = url.password() {
            let _ = config.password(password);
        }
        if relaxed {
            // At the start of a connection: a pooler refuses it, rather than setting it for its other clients.
            let _ = config.options("-c synchronous_commit=off");
        }
        let tls = match Security::of(url, params)? {
            Security::Off => {
                let _ = config.ssl_mode(SslMode::Disable);
                None
            }
            security => Some(Tls::new(&security, &mut config).map_err(bad)?),
        };
        let shown = shown.join(", ");
        Ok(Self {
            config,
            hosts,
            tls,
            shown,
        })
    }
}

impl Server {
    /// A connection to the first host that takes one.
    async fn open(&self, heard: Option<Heard>) -> Result<wire::Connection, Trouble> {
        let mut refused = Trouble::new(What::Broken, "no host");
        for host in &self.hosts {
            let tls = self.tls.as_ref();
            match wire::Connection::open(&self.config, host, tls, heard.clone()).await {
                Ok(connection) => return Ok(connection),
                Err(trouble) => refused = trouble,
            }
        }
        Err(refused)
    }
}

#[async_trait]
impl Connect for Server {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn place(&self) -> String {
        self.shown.clone()
    }

    async fn connect(&self) -> Result<Box<dyn Link>, Trouble> {
        let opened = self.open(None).await;
        let mut link = opened.map_err(|trouble| trouble.from(&self.shown))?;
        let rows = link
            .run("SELECT pg_is_in_recovery()::int, current_setting('server_version_num'), pg_backend_pid()")
            .await?;
        let process = suitable(&rows)?;
        // An encrypted connection does not say what it would be cancelled by.
        if self.tls.is_none() {
            link.answered_by(process).await;
        }
        if link.is_direct() {
            // Through a pooler it would be set for others, and only for one packet.
            let _ = link.run("SET lock_timeout = 4000").await?;
        }
        Ok(Box::new(link))
    }

    async fn listen(&self, channel: &str, heard: Heard) -> Result<Option<Listening>, Trouble> {
        let link = self.open(Some(heard)).await?;
        link.listen(channel).await.map(Some)
    }
}

/// The process of the server that answered.
fn suitable(rows: &[Rows]) -> Result<u64, Trouble> {
    let row = rows.first().and_then(|rows| rows.first());
    let row = row.map_or(&[][..], Vec::as_slice);
    let version = super::rows::number(row, 1)?;
    let what = match super::rows::number(row, 0)? {
        0 if version >= 110_000 => return super::rows::number(row, 2),
        0 => format!(
            "PostgreSQL 11 or newer is needed; this is {}",
            version / 10_000
        ),
        _ => "this server is a read-only replica: connect to the primary".to_owned(),
    };
    Err(Trouble::new(What::Unsuitable, what))
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server({})", self.shown)
    }
}
