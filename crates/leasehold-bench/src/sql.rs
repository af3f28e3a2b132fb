//! The databases beside the bare statements, and beside the commonest lock made by hand.
//!
//! Each server commits to disk before it answers. The bare peer inserts and deletes a row with prepared statements on
//! a connection of its own. The naive lock is a unique key: insert to lock, delete to unlock, and look again after
//! 1 ms. Beside the servers stands what two updates of one bare row cost: a lock that remembers its last fence keeps a
//! row, so it cannot be below that. Strict order stands beside the locks of a connection that a server has built in
//! (`pg_advisory_lock`, `GET_LOCK`): a queue in the server's memory, which writes nothing.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use mysql_async::prelude::Queryable;
use tokio::runtime::Runtime;

use crate::Settings;
use crate::measure::{Duel, Outcome, Spread, Watch, duel};
use crate::memory::one_thread;
use crate::table::{Goal, Row};

const ROUNDS: u32 = 300;
const TIME: Duration = Duration::from_secs(2);
const PROCESSES: usize = 2;
const LOCKERS_EACH: usize = 15;

/// Two statements, and what they need.
struct Pair {
    setup: &'static [&'static str],
    lock: &'static str,
    unlock: &'static str,
}

const BARE: Pair = Pair {
    setup: &["CREATE TABLE IF NOT EXISTS bare (k BIGINT PRIMARY KEY, who BIGINT)"],
    lock: "INSERT INTO bare VALUES (1, 7)",
    unlock: "DELETE FROM bare WHERE k = 1",
};

const KEPT: Pair = Pair {
    setup: &[
        "CREATE TABLE kept (k BIGINT PRIMARY KEY, who BIGINT)",
        "INSERT INTO kept VALUES (1, 0)",
    ],
    lock: "UPDATE kept SET who = 7 WHERE k = 1 AND who = 0",
    unlock: "UPDATE kept SET who = 0 WHERE k = 1 AND who = 7",
};

const ADVISORY: Pair = Pair {
    setup: &[],
    lock: "SELECT pg_advisory_lock(7)",
    unlock: "SELECT pg_advisory_unlock(7)",
};

const GET_LOCK: Pair = Pair {
    setup: &[],
    lock: "SELECT GET_LOCK('crowd', 60)",
    unlock: "SELECT RELEASE_LOCK('crowd')",
};

/// One locker alone.
pub(crate) fn uncontended(settings: &Settings) -> Outcome<()> {
    let runtime = one_thread()?;
    let goal = Goal::AtMost(1.2);
    let server = Postgres::durable();
    beside_updates(settings, &runtime, "postgres", &server.url(), goal)?;
    let server = MariaDb::durable();
    beside_updates(settings, &runtime, "mariadb", &server.url(), goal)?;
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    let file = rusqlite::Connection::open(dir.path().join("bare.db"))?;
    file.pragma_update(None, "journal_mode", "wal")?;
    file.pragma_update(None, "synchronous", "normal")?;
    for statement in BARE.setup {
        let _ = file.execute(statement, [])?;
    }
    let mut peer = Naive::Sqlite(file, BARE);
    // At least half as many pairs a second as the bare two transactions.
    let duel = alone(
        settings,
        &runtime,
        "sqlite",
        &url,
        &mut peer,
        Goal::AtMost(2.0),
    )?;
    let pairs = Spread {
        low: 1e6 / duel.ours.high,
        median: 1e6 / duel.ours.median,
        high: 1e6 / duel.ours.low,
    };
    let goal = Goal::AtLeast(10_000.0);
    Row::alone("sqlite uncontended pairs", "/s", pairs, goal).print();
    Ok(())
}

/// A server's locks, and two updates of a row, beside an insert and a delete.
fn beside_updates(
    settings: &Settings,
    runtime: &Runtime,
    kind: &str,
    url: &str,
    goal: Goal,
) -> Outcome<()> {
    let mut peer = runtime.block_on(Naive::connect(url, BARE))?;
    let _ = alone(settings, runtime, kind, url, &mut peer, goal)?;
    let mut kept = runtime.block_on(Naive::connect(url, KEPT))?;
    let duel = duel(
        settings.repeats,
        || pairs(runtime, &mut kept),
        || pairs(runtime, &mut peer),
    )?;
    let shown = |spread: Spread| format!("{:.3} µs", spread.median);
    let (ours, theirs) = (shown(duel.ours), shown(duel.peer));
    let mut row = Row::note("  two bare updates beside the same", ours, theirs);
    row.figure = format!("{}x", duel.ratio);
    row.print();
    Ok(())
}

fn alone(
    settings: &Settings,
    runtime: &Runtime,
    kind: &str,
    url: &str,
    peer: &mut Naive,
    goal: Goal,
) -> Outcome<Duel> {
    let client = runtime.block_on(leasehold::connect(url))?;
    let ours = || {
        let mutex = client.mutex("alone");
        let work = async move {
            let watch = Watch::start();
            for _ in 0..ROUNDS {
                let _ = mutex.lock().await?.release().await?;
            }
            Ok::<_, leasehold::Error>(micros_each(watch))
        };
        Ok(runtime.block_on(runtime.spawn(work))??)
    };
    let duel = duel(settings.repeats, ours, || pairs(runtime, peer))?;
    let name = format!("{kind} uncontended beside insert + delete");
    Row::ratio(&name, "µs", &duel, goal).print();
    Ok(duel)
}

fn pairs(runtime: &Runtime, peer: &mut Naive) -> Outcome<f64> {
    runtime.block_on(async {
        let watch = Watch::start();
        for _ in 0..ROUNDS {
            let _ = peer.lock().await?;
            peer.unlock().await?;
        }
        Ok(micros_each(watch))
    })
}

fn micros_each(watch: Watch) -> f64 {
    watch.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

/// Thirty lockers over two processes on one name.
pub(crate) fn contended(settings: &Settings) -> Outcome<()> {
    let both = ("ours", "naive", "2 x 15 lockers beside a unique key");
    let server = Postgres::durable();
    let deadlocks = || server.deadlocks();
    crowd(settings, "postgres", &server.url(), &deadlocks, both, 3.0)?;
    let server = MariaDb::durable();
    let deadlocks = || server.deadlocks();
    crowd(settings, "mariadb", &server.url(), &deadlocks, both, 3.0)
}

/// The same in strict order, with commits that wait for the disk and with commits that do not.
pub(crate) fn strict(settings: &Settings) -> Outcome<()> {
    let both = ("strict", "session", "strict beside session locks");
    let server = Postgres::durable();
    let deadlocks = || server.deadlocks();
    crowd(settings, "postgres", &server.url(), &deadlocks, both, 0.4)?;
    let (kind, url) = ("postgres async", format!("{}?commit=async", server.url()));
    crowd(settings, kind, &url, &deadlocks, both, 0.8)?;
    let server = MariaDb::durable();
    let deadlocks = || server.deadlocks();
    crowd(settings, "mariadb", &server.url(), &deadlocks, both, 0.4)
}

fn crowd(
    settings: &Settings,
    kind: &str,
    url: &str,
    deadlocks: &dyn Fn() -> String,
    (our, their, what): (&str, &str, &str),
    goal: f64,
) -> Outcome<()> {
    let (mut ours, mut peer) = (Trouble::default(), Trouble::default());
    let run = |how: &str, trouble: &mut Trouble| {
        let before: u64 = deadlocks().parse()?;
        let served = processes(how, url, &mut trouble.errors)?;
        trouble.deadlocks += deadlocks().parse::<u64>()?.saturating_sub(before);
        Ok(served)
    };
    let duel = duel(
        settings.repeats,
        || run(our, &mut ours),
        || run(their, &mut peer),
    )?;
    let name = format!("{kind} {what}");
    Row::ratio(&name, "/s", &duel, Goal::AtLeast(goal)).print();
    let shown = |count: u64| format!("{count} in {} runs", settings.repeats + 1);
    let met = (shown(ours.errors), shown(peer.errors));
    Row::note("  errors of the database met", met.0, met.1).print();
    let met = (shown(ours.deadlocks), shown(peer.deadlocks));
    Row::note("  deadlocks by the server's counter", met.0, met.1).print();
    Ok(())
}

/// The counts of a side over all its runs.
#[derive(Default)]
struct Trouble {
    errors: u64,
    deadlocks: u64,
}

fn processes(how: &str, url: &str, troubles: &mut u64) -> Outcome<f64> {
    let start = |_| {
        let mut command = Command::new(std::env::current_exe()?);
        let command = command.args(["sql", how, url]).stdout(Stdio::piped());
        command.spawn()
    };
    let children: Result<Vec<_>, _> = (0..PROCESSES).map(start).collect();
    let mut served = 0;
    for mut child in children? {
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let _ = BufReader::new(stdout).read_line(&mut line)?;
        let _ = child.wait()?;
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        served += numbers.next().ok_or("no answer")??;
        *troubles += numbers.next().ok_or("no answer")??;
    }
    Ok(served as f64 / TIME.as_secs_f64())
}

/// One of the processes: says how often its lockers were served, and how many errors they met.
pub(crate) fn work(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let (how, url) = (
        arguments.next().ok_or("how")?,
        arguments.next().ok_or("url")?,
    );
    let runtime = one_thread()?;
    let (served, troubles) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (stop, mut answer) = (Arc::new(AtomicBool::new(false)), (0, 0));
    runtime.block_on(async {
        let mut lockers = tokio::task::JoinSet::new();
        let client = match how.as_str() {
            "ours" | "strict" => Some(leasehold::connect(&url).await?),
            _ => None,
        };
        let strict = how == "strict";
        let pair = || match (how.as_str(), url.starts_with("mysql")) {
            ("session", true) => GET_LOCK,
            ("session", false) => ADVISORY,
            _ => BARE,
        };
        for _ in 0..LOCKERS_EACH {
            let (served, troubles, stop) = (served.clone(), troubles.clone(), stop.clone());
            let mut peer = match &client {
                Some(_) => None,
                None => Some(Naive::connect(&url, pair()).await?),
            };
            let client = client.clone();
            let _ = lockers.spawn(async move {
                // Each finishes its turn: a lock left behind would be in the way of the next run.
                while !stop.load(Ordering::Relaxed) {
                    if let Some(client) = &client {
                        let mutex = client.mutex("crowd");
                        let mutex = if strict { mutex.strict() } else { mutex };
                        let locked = mutex.lock().await;
                        let freed = match locked {
                            Ok(guard) => guard.release().await.is_ok(),
                            Err(_) => false,
                        };
                        let counter = if freed { &served } else { &troubles };
                        let _ = counter.fetch_add(1, Ordering::Relaxed);
                    } else if let Some(peer) = &mut peer {
                        peer.turn(&served, &troubles).await;
                    }
                }
            });
        }
        tokio::time::sleep(TIME).await;
        stop.store(true, Ordering::Relaxed);
        // Grants while they finish do not count.
        answer = (
            served.load(Ordering::Relaxed),
            troubles.load(Ordering::Relaxed),
        );
        while lockers.join_next().await.is_some() {}
        if let Some(client) = client {
            let _ = client.shutdown(TIME).await?;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    println!("{} {}", answer.0, answer.1);
    Ok(())
}

/// The bare statements, and the lock that is made of them.
enum Naive {
    Postgres(
        tokio_postgres::Client,
        tokio_postgres::Statement,
        tokio_postgres::Statement,
    ),
    Mysql(mysql_async::Conn, Pair),
    Sqlite(rusqlite::Connection, Pair),
}

impl Naive {
    async fn connect(url: &str, pair: Pair) -> Outcome<Self> {
        let url = url.split('?').next().unwrap_or(url);
        if url.starts_with("mysql") {
            let opts = mysql_async::OptsBuilder::from_opts(mysql_async::Opts::from_url(url)?);
            // The crate would leave TCP for the server's Unix socket; ours goes where the URL says.
            let opts = opts.prefer_socket(false).tcp_nodelay(true);
            let mut conn = mysql_async::Conn::new(opts).await?;
            for statement in pair.setup {
                conn.query_drop(*statement).await?;
            }
            return Ok(Self::Mysql(conn, pair));
        }
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        drop(tokio::spawn(connection));
        for statement in pair.setup {
            let _ = client.batch_execute(statement).await;
        }
        let lock = match pair.lock.strip_prefix("INSERT") {
            Some(insert) => format!("INSERT{insert} ON CONFLICT DO NOTHING"),
            None => pair.lock.to_owned(),
        };
        let (lock, unlock) = (
            client.prepare(&lock).await?,
            client.prepare(pair.unlock).await?,
        );
        Ok(Self::Postgres(client, lock, unlock))
    }

    async fn unlock(&mut self) -> Outcome<()> {
        match self {
            Self::Postgres(client, _, unlock) => drop(client.execute(unlock, &[]).await?),
            Self::Mysql(conn, pair) => conn.exec_drop(pair.unlock, ()).await?,
            Self::Sqlite(file, pair) => drop(file.prepare(pair.unlock)?.execute([])?),
        }
        Ok(())
    }

    /// Whether it is ours now.
    async fn lock(&mut self) -> Outcome<bool> {
        match self {
            Self::Postgres(client, lock, _) => Ok(client.execute(lock, &[]).await? == 1),
            Self::Mysql(conn, pair) => match conn.exec_drop(pair.lock, ()).await {
                Ok(()) => Ok(true),
                Err(mysql_async::Error::Server(told)) if told.code == 1062 => Ok(false),
                Err(error) => Err(error.into()),
            },
            Self::Sqlite(file, pair) => {
                let mut lock = file.prepare(pair.lock)?;
                Ok(lock.execute([])? == 1)
            }
        }
    }

    async fn turn(&mut self, served: &AtomicU64, troubles: &AtomicU64) {
        match self.lock().await.map_err(drop) {
            Ok(true) => {
                while self.unlock().await.is_err() {
                    let _ = troubles.fetch_add(1, Ordering::Relaxed);
                }
                let _ = served.fetch_add(1, Ordering::Relaxed);
            }
            Ok(false) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(()) => drop(troubles.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
