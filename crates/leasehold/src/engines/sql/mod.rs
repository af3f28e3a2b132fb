#![doc = include_str!("docs.md")]

mod beat;
mod clean;
mod crowd;
mod dialect;
mod doubt;
mod evict;
mod lanes;
mod listen;
#[cfg(feature = "mysql")]
mod mysql;
mod op;
mod pin;
mod post;
#[cfg(feature = "postgres")]
mod postgres;
mod prepare;
mod quick;
mod rows;
mod session;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod tables;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod tls;
mod trust;
mod view;
mod wire;
mod world;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::dialect::Dialect;
use self::evict::Eviction;
use self::op::{Answer, Op};
#[cfg(fuzzing)]
pub(crate) use self::post::tests as fuzzed;
use self::session::SqlSession;
use self::tables::Tables;
use self::wire::Connect;
use self::world::{Settings, World};
#[cfg(feature = "sqlite")]
use crate::engine::path_in_url;
use crate::engine::{
    Clock, Ended, Engine, Fault, Guarantees, Identity, Inbox, Level, LineView, Params, Query,
    Session, Url, Verdict, cannot_ask,
};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::name::Name;

/// Lines in the tables of a database.
#[derive(Debug, Clone)]
pub struct Sql {
    world: Arc<World>,
}

/// The engine of a `postgres:`, `mysql:` or `sqlite:` URL.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(Sql::from_url(url)?))
}

impl Sql {
    /// The lines in the database of a URL. Nothing is connected yet.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a URL that no database of this build understands.
    pub fn from_url(url: &Url) -> Result<Self> {
        Self::with(url, None)
    }

    /// The same, with time from this clock instead of the database's. For tests.
    ///
    /// # Errors
    /// As [`from_url`](Self::from_url).
    #[cfg(feature = "conformance")]
    pub fn on_clock(url: &Url, clock: Clock) -> Result<Self> {
        Self::with(url, Some(clock))
    }

    /// Does now what is done every ten minutes: removes what is long idle. For tests.
    ///
    /// # Errors
    /// If the database cannot do it.
    #[cfg(feature = "conformance")]
    pub async fn clean(&self) -> Result<()> {
        let world = &self.world;
        world
            .ask(&world.names, Vec::new(), Op::Clean)
            .await
            .map(drop)
    }

    fn with(url: &Url, clock: Option<Clock>) -> Result<Self> {
        let mut params = url.params();
        let (connect, settings) = connector(url, &mut params, clock)?;
        let prefix = params.take("prefix");
        let tables = Tables::new(
            connect.dialect(),
            prefix.as_deref().unwrap_or(tables::PREFIX),
        )?;
        params.finish()?;
        Ok(Self {
            world: World::new(tables, connect, settings),
        })
    }

    fn dialect(&self) -> Dialect {
        self.world.tables().dialect
    }
}

pub(crate) use self::store::store;
pub(crate) use self::tables::PREFIX;

/// The statements that create the tables.
pub(crate) fn schema(database: &str, prefix: &str) -> Result<String> {
    let dialect = match database {
        #[cfg(feature = "postgres")]
        "postgres" => Dialect::Postgres,
        #[cfg(feature = "mysql")]
        "mysql" => Dialect::Mysql,
        #[cfg(feature = "sqlite")]
        "sqlite" => Dialect::Sqlite,
        other => return Err(bad(&format!("{other:?} is no database of this build"))),
    };
    Ok(Tables::new(dialect, prefix)?.create())
}

type Opened = (Arc<dyn Connect>, Settings);

fn connector(url: &Url, params: &mut Params, clock: Option<Clock>) -> Result<Opened> {
    #[cfg_attr(
        not(any(feature = "postgres", feature = "mysql", feature = "sqlite")),
        expect(unused_mut, reason = "the others change nothing")
    )]
    let mut settings = settings(url, params, clock)?;
    Ok(match url.scheme() {
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            // The whole file has one writer at a time: more connections would only stand in each other's way.
            settings.lanes = 1;
            let _ = settings.clock.get_or_insert_with(Clock::boot);
            let file = sqlite::File::at(url, params)?;
            settings.location = location(url, &path_in_url(&file.path));
            (Arc::new(file), settings)
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            settings.notify = match params.take("notify").as_deref() {
                None | Some("on") => true,
                Some("off") => false,
                Some(_) => return Err(bad("notify is on or off")),
            };
            settings.single = single(params)?;
            settings.relaxed = match params.take("commit").as_deref() {
                None | Some("durable") => false,
                Some("async") => true,
                Some(_) => return Err(bad("commit is durable or async")),
            };
            let server = postgres::Server::at(url, params, settings.relaxed)?;
            (Arc::new(server), settings)
        }
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => {
            settings.single = single(params)?;
            (Arc::new(mysql::Server::at(url, params)?), settings)
        }
        other => return Err(bad(&format!("{other:?} is no database of this build"))),
    })
}

/// Whether the URL says that no replica ever takes over from this server.
#[cfg(any(feature = "postgres", feature = "mysql"))]
fn single(params: &mut Params) -> Result<bool> {
    match params.take("failover").as_deref() {
        None | Some("possible") => Ok(false),
        Some("none") => Ok(true),
        Some(_) => Err(bad("failover is possible or none")),
    }
}

fn settings(url: &Url, params: &mut Params, clock: Option<Clock>) -> Result<Settings> {
    let create = match params.take("schema").as_deref() {
        None | Some("create") => true,
        Some("check") => false,
        Some(_) => return Err(bad("schema is create or check")),
    };
    let number = |text: Option<String>, name: &str, default: u64| match text.map(|t| t.parse()) {
        None => Ok(default),
        Some(Ok(number)) if number > 0 => Ok(number),
        Some(_) => Err(bad(&format!("{name} is a number above 0"))),
    };
    let lanes = number(params.take("connections"), "connections", 4)?;
    let patience = params.duration("timeout", Duration::from_secs(1));
    let patience = patience.map_err(|what| bad(&what))?;
    Ok(Settings {
        lanes: usize::try_from(lanes.min(64)).unwrap_or(4),
        patience: patience.unwrap_or(Duration::from_secs(5)),
        create,
        notify: false,
        #[cfg(feature = "postgres")]
        relaxed: false,
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        single: false,
        clock,
        location: location(url, url.path()),
    })
}

/// The URL without its options and without a password: what two clients of the same locks have in common.
fn location(url: &Url, path: &str) -> String {
    let prefix = url.params().take("prefix");
    let hosts = match url.hosts() {
        [] => String::new(),
        hosts => format!("//{}", hosts.join(",")),
    };
    let prefix = prefix.map_or_else(String::new, |prefix| format!("?prefix={prefix}"));
    format!("{}:{hosts}{path}{prefix}", url.scheme())
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::Config, Step::Connect, what)
}

#[async_trait]
impl Engine for Sql {
    fn kind(&self) -> &'static str {
        self.dialect().word()
    }

    fn location(&self) -> String {
        self.world.settings.location.clone()
    }

    fn guarantees(&self) -> Guarantees {
        match self.dialect() {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => {
                let settings = &self.world.settings;
                let engine = match (settings.relaxed, settings.single) {
                    (false, false) => "PostgreSQL",
                    (false, true) => "PostgreSQL, failover=none",
                    (true, false) => "PostgreSQL, commit=async",
                    (true, true) => "PostgreSQL, commit=async, failover=none",
                };
                let crash = match settings.relaxed {
                    true => Verdict::Fenced,
                    false => Verdict::Kept,
                };
                server(engine, crash, settings.single)
            }
            #[cfg(feature = "mysql")]
            Dialect::Mysql => match self.world.settings.single {
                false => server("MariaDB, MySQL", Verdict::Kept, false),
                true => server("MariaDB, MySQL, failover=none", Verdict::Kept, true),
            },
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => Guarantees::new("SQLite", Level::L2)
                .verdict(
                    Verdict::Kept,
                    [Fault::HolderCrash, Fault::ClockStep, Fault::ServerCrash],
                )
                .verdict(Verdict::Fenced, [Fault::Pause])
                .verdict(Verdict::Absent, [Fault::Failover, Fault::Partition])
                .scope("the processes of one machine that open the same file")
                .dead_holder("after its lease"),
        }
    }

    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>> {
        Ok(SqlSession::open(self.world.clone(), who, inbox).await?)
    }

    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>> {
        let (world, look) = (&self.world, Op::Inspect(query.name.clone()));
        match world.ask(&world.beats, Vec::new(), look).await? {
            Answer::Lines(lines) => Ok(lines),
            _ => Ok(Vec::new()),
        }
    }

    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32> {
        let ended = Ended::Evicted {
            by: by.to_string(),
            why: why.to_owned(),
        };
        tracing::warn!(%name, %by, why, "evicted");
        let op = Op::Evict(Eviction::new(name.clone(), fence, ended));
        match self.world.ask(&self.world.names, Vec::new(), op).await? {
            Answer::Evicted(count) => Ok(count),
            _ => Ok(0),
        }
    }

    async fn ask_to_release(&self, name: &Name, _: Option<Fence>) -> Result<u32> {
        Err(cannot_ask(self.kind(), name))
    }
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn server(engine: &'static str, crash: Verdict, single: bool) -> Guarantees {
    let (kept, fenced) = (Verdict::Kept, Verdict::Fenced);
    // A replica that lags does not know the last fences either.
    let (level, failover) = match single {
        true => (Level::L2, Verdict::Absent),
        false => (Level::L1, Verdict::Broken),
    };
    Guarantees::new(engine, level)
        .verdict(kept, [Fault::HolderCrash, Fault::Partition])
        .verdict(fenced, [Fault::Pause, Fault::ClockStep])
        .verdict(crash, [Fault::ServerCrash])
        .verdict(failover, [Fault::Failover])
        .scope("every process that uses the same database and prefix")
        .dead_holder("after its lease")
}
