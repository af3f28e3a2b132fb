//! The databases beside the bare statements, and beside the lock that everybody writes first.
//!
//! Each server commits to disk before it answers. The bare peer inserts and deletes a row with prepared statements on
//! a connection of its own. The naive lock is a unique key: insert to lock, delete to unlock, and look again after
//! 1 ms.

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

const TABLE: &str = "CREATE TABLE IF NOT EXISTS bare (k BIGINT PRIMARY KEY, who BIGINT)";
const UNLOCK: &str = "DELETE FROM bare WHERE k = 1";

/// One locker, nobody else.
pub(crate) fn uncontended(settings: &Settings) -> Outcome<()> {
    let runtime = one_thread()?;
    let goal = Goal::AtMost(1.2);
    let server = Postgres::durable();
    let mut peer = runtime.block_on(Naive::connect(&server.url()))?;
    let _ = alone(
        settings,
        &runtime,
        "postgres",
        &server.url(),
        &mut peer,
        goal,
    )?;
    let server = MariaDb::durable();
    let mut peer = runtime.block_on(Naive::connect(&server.url()))?;
    let _ = alone(
        settings,
        &runtime,
        "mariadb",
        &server.url(),
        &mut peer,
        goal,
    )?;
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    let file = rusqlite::Connection::open(dir.path().join("bare.db"))?;
    file.pragma_update(None, "journal_mode", "wal")?;
    file.pragma_update(None, "synchronous", "normal")?;
    let mut peer = Naive::Sqlite(file);
    runtime.block_on(peer.run(TABLE))?;
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
    let bare = || {
        runtime.block_on(async {
            let watch = Watch::start();
            for _ in 0..ROUNDS {
                let _ = peer.lock().await?;
                peer.run(UNLOCK).await?;
            }
            Ok(micros_each(watch))
        })
    };
    let duel = duel(settings.repeats, ours, bare)?;
    let name = format!("{kind} uncontended beside insert + delete");
    Row::ratio(&name, "µs", &duel, goal).print();
    Ok(duel)
}

fn micros_each(watch: Watch) -> f64 {
    watch.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}

/// Thirty lockers over two processes on one name.
pub(crate) fn contended(settings: &Settings) -> Outcome<()> {
    let server = Postgres::durable();
    crowd(settings, "postgres", &server.url(), &|| server.deadlocks())?;
    let server = MariaDb::durable();
    crowd(settings, "mariadb", &server.url(), &|| server.deadlocks())
}

fn crowd(
    settings: &Settings,
    kind: &str,
    url: &str,
    deadlocks: &dyn Fn() -> String,
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
        || run("ours", &mut ours),
        || run("naive", &mut peer),
    )?;
    let name = format!("{kind} 2 x 15 lockers beside a unique key");
    Row::ratio(&name, "/s", &duel, Goal::AtLeast(3.0)).print();
    let shown = |count: u64| format!("{count} in {} runs", settings.repeats + 1);
    let met = (shown(ours.errors), shown(peer.errors));
    Row::note("  errors of the database met", met.0, met.1).print();
    let met = (shown(ours.deadlocks), shown(peer.deadlocks));
    Row::note("  deadlocks by the server's counter", met.0, met.1).print();
    Ok(())
}

/// What a side met in all its runs.
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
            "ours" => Some(leasehold::connect(&url).await?),
            _ => None,
        };
        for _ in 0..LOCKERS_EACH {
            let (served, troubles, stop) = (served.clone(), troubles.clone(), stop.clone());
            let mut peer = match &client {
                Some(_) => None,
                None => Some(Naive::connect(&url).await?),
            };
            let client = client.clone();
            let _ = lockers.spawn(async move {
                // Each finishes its turn: a lock left behind would be in the way of the next run.
                while !stop.load(Ordering::Relaxed) {
                    if let Some(client) = &client {
                        let locked = client.mutex("crowd").lock().await;
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
        // What is served while they finish does not count.
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
    Mysql(mysql_async::Conn),
    Sqlite(rusqlite::Connection),
}

impl Naive {
    async fn connect(url: &str) -> Outcome<Self> {
        if url.starts_with("mysql") {
            let mut conn = mysql_async::Conn::new(mysql_async::Opts::from_url(url)?).await?;
            conn.query_drop(TABLE).await?;
            return Ok(Self::Mysql(conn));
        }
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        drop(tokio::spawn(connection));
        let _ = client.batch_execute(TABLE).await;
        let lock = "INSERT INTO bare VALUES (1, 7) ON CONFLICT DO NOTHING";
        let (lock, unlock) = (client.prepare(lock).await?, client.prepare(UNLOCK).await?);
        Ok(Self::Postgres(client, lock, unlock))
    }

    async fn run(&mut self, statement: &str) -> Outcome<()> {
        match self {
            Self::Postgres(client, _, unlock) => drop(client.execute(unlock, &[]).await?),
            Self::Mysql(conn) => conn.exec_drop(statement, ()).await?,
            Self::Sqlite(file) => drop(file.prepare(statement)?.execute([])?),
        }
        Ok(())
    }

    /// Whether it is ours now.
    async fn lock(&mut self) -> Outcome<bool> {
        match self {
            Self::Postgres(client, lock, _) => Ok(client.execute(lock, &[]).await? == 1),
            Self::Mysql(conn) => match conn.exec_drop("INSERT INTO bare VALUES (1, 7)", ()).await {
                Ok(()) => Ok(true),
                Err(mysql_async::Error::Server(told)) if told.code == 1062 => Ok(false),
                Err(error) => Err(error.into()),
            },
            Self::Sqlite(file) => {
                let mut lock = file.prepare("INSERT INTO bare VALUES (1, 7)")?;
                Ok(lock.execute([])? == 1)
            }
        }
    }

    async fn turn(&mut self, served: &AtomicU64, troubles: &AtomicU64) {
        match self.lock().await.map_err(drop) {
            Ok(true) => {
                while self.run(UNLOCK).await.is_err() {
                    let _ = troubles.fetch_add(1, Ordering::Relaxed);
                }
                let _ = served.fetch_add(1, Ordering::Relaxed);
            }
            Ok(false) => tokio::time::sleep(Duration::from_millis(1)).await,
            Err(()) => drop(troubles.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
