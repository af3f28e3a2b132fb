//! Hazards of the databases, with real servers and real processes.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::lockers::{fence, in_line, locker};
use leasehold::engine::{
    Claim, Clock, Engine, Event, Identity, Inbox, Mode, Session, Sql, Standing, Url,
};
use leasehold::{ErrorKind, Name};
use leasehold_testkit::poll::until;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::pgbouncer::PgBouncer;
use leasehold_testkit::servers::postgres::Postgres;

fn sqlite() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    (dir, url)
}

/// Processes add to a number that only the lock protects, while as many as `doomed` of them are killed holding it:
/// nothing is lost, nothing is counted twice.
fn storm(url: &str, processes: u64, doomed: u64, rounds: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("number").display().to_string();
    std::fs::write(&file, "0").expect("writable");
    let clock = Clock::boot();
    // A dead holder is waited for; one that counts may be kept waiting for seconds by a busy machine.
    let lockers = start_all(url, 3_000, doomed);
    let mut counters = start_all(url, 20_000, processes - doomed);
    let before = clock.now();
    for locker in &mut counters {
        locker.say(&format!("count x {file} {rounds}"));
    }
    for mut dies in lockers {
        dies.say("lock x");
        assert!(fence(&dies.hear_within(Duration::from_secs(60))) > 0);
        dies.kill();
    }
    for locker in &counters {
        assert_eq!(locker.hear_within(Duration::from_secs(60)), "counted");
    }
    let took = Duration::from_micros(clock.now() - before);
    println!("{processes} processes, {doomed} of them killed: {took:?}");
    let number = std::fs::read_to_string(&file).expect("readable");
    assert_eq!(number, (counters.len() as u64 * rounds).to_string());
}

/// So many processes, all started before the first is heard.
fn start_all(url: &str, lease_ms: u32, processes: u64) -> Vec<Process> {
    let start = |_| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_locker"));
        Process::start(command.arg(url).arg(lease_ms.to_string()))
    };
    let lockers: Vec<_> = (0..processes).map(start).collect();
    for locker in &lockers {
        assert_eq!(locker.hear(), "ready", "{url}");
    }
    lockers
}

/// A dead holder's lock passes on after its lease, to the waiter in another process.
fn dead_holder(url: &str) {
    let (mut holder, mut waiter) = (locker(url, 3_000), locker(url, 3_000));
    let first = fence(&holder.ask("lock dead"));
    waiter.say("lock dead");
    holder.kill();
    let clock = Clock::boot();
    let before = clock.now();
    assert!(fence(&waiter.hear()) > first);
    let took = Duration::from_micros(clock.now() - before);
    println!("a dead holder's lock passed on after {took:?}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

/// A release in one process wakes the waiter in another long before it would look by itself.
fn hand_over(url: &str) {
    let (mut holder, mut waiter) = (locker(url, 60_000), locker(url, 60_000));
    let mut slowest = Duration::ZERO;
    for _ in 0..5 {
        let first = fence(&holder.ask("lock over"));
        waiter.say("lock over");
        let engine = Sql::from_url(&Url::parse(url).expect("a URL")).expect("an engine");
        in_line(&engine, "over", 1);
        let clock = Clock::boot();
        let before = clock.now();
        assert_eq!(holder.ask("release over"), "Released");
        assert!(fence(&waiter.hear()) > first);
        slowest = slowest.max(Duration::from_micros(clock.now() - before));
        assert_eq!(waiter.ask("release over"), "Released");
    }
    println!("a release reached the other process within {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
}

#[test]
fn sqlite_between_processes() {
    let (_dir, url) = sqlite();
    hand_over(&url);
    dead_holder(&url);
    storm(&url, 32, 3, 8);
}

#[test]
fn postgres_between_processes() {
    let server = Postgres::start();
    hand_over(&server.url());
    dead_holder(&server.url());
    storm(&server.url(), 32, 3, 8);
    assert_eq!(server.deadlocks(), "0");
}

#[test]
fn mariadb_between_processes() {
    let server = MariaDb::start();
    hand_over(&server.url());
    dead_holder(&server.url());
    storm(&server.url(), 32, 3, 8);
    assert_eq!(server.deadlocks(), "0");
}

#[test]
fn behind_a_pooler() {
    let server = Postgres::start();
    let pooler = PgBouncer::before(&server, 3);
    hand_over(&pooler.url());
    storm(&pooler.url(), 8, 2, 20);
    hand_over(&format!("{}?notify=off", pooler.url()));
}

/// Many clients that begin at the same moment on an empty database all find whole tables.
fn begin_at_once(url: &str) {
    drop(start_all(url, 5_000, 6));
}

#[test]
fn all_may_begin_at_once() {
    begin_at_once(&MariaDb::start().url());
    begin_at_once(&Postgres::start().url());
    // The change to WAL cannot wait for other clients that make it, so that is tried on many new files.
    for _ in 0..20 {
        let (_dir, url) = sqlite();
        begin_at_once(&url);
    }
}

/// The connections are cut while a lock is held: it stays held, and can be given back.
fn cut_off(url: &str, cut: impl Fn()) {
    let (mut holder, mut waiter) = (locker(url, 10_000), locker(url, 10_000));
    let first = fence(&holder.ask("lock cut"));
    cut();
    assert_eq!(holder.ask("state cut"), "Valid");
    assert_eq!(waiter.ask("try cut"), "busy");
    cut();
    assert_eq!(holder.ask("release cut"), "Released");
    assert!(fence(&waiter.ask("lock cut")) > first);
    assert_eq!(waiter.ask("release cut"), "Released");
}

#[test]
fn a_terminated_backend_costs_nothing() {
    let server = Postgres::start();
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    cut_off(&server.url(), || drop(server.sql(kill)));
    let server = MariaDb::start();
    cut_off(&server.url(), || {
        let all = "SELECT id FROM information_schema.processlist WHERE db = 'lab'";
        for id in server.sql(all).lines() {
            drop(server.try_sql(&format!("KILL {id}")));
        }
    });
}

#[test]
fn idle_connections_may_be_closed() {
    let server = Postgres::with(&["idle_session_timeout=200ms", "fsync=off"]);
    idle(&server.url());
    let server = MariaDb::with(&["--wait-timeout=1"]);
    idle(&server.url());
}

fn idle(url: &str) {
    // The lease is long, so nothing is said for a while.
    let mut holder = locker(url, 60_000);
    let first = fence(&holder.ask("lock idle"));
    let clock = Clock::boot();
    let end = clock.now() + 1_500_000;
    until("the idle time has passed", || {
        (clock.now() >= end).then_some(()).ok_or_else(String::new)
    });
    assert_eq!(holder.ask("release idle"), "Released");
    assert!(fence(&holder.ask("lock idle")) > first);
}

#[test]
fn a_killed_server_comes_back_with_every_lock() {
    let mut server = Postgres::durable();
    let (mut holder, mut other) = (locker(&server.url(), 20_000), locker(&server.url(), 20_000));
    let first = fence(&holder.ask("lock x"));
    server.kill();
    server.restart();
    assert_eq!(other.ask("try x"), "busy");
    assert_eq!(holder.ask("release x"), "Released");
    assert!(fence(&other.ask("lock x")) > first);

    let mut server = MariaDb::durable();
    let (mut holder, mut other) = (locker(&server.url(), 20_000), locker(&server.url(), 20_000));
    let first = fence(&holder.ask("lock x"));
    server.kill();
    server.restart();
    assert_eq!(other.ask("try x"), "busy");
    assert_eq!(holder.ask("release x"), "Released");
    assert!(fence(&other.ask("lock x")) > first);
}

/// A server that says nothing for longer than the lease: the holder is told before another holder can get in.
#[test]
fn a_silent_server_ends_in_a_loss_that_is_told() {
    let server = MariaDb::start();
    let mut holder = locker(&server.url(), 3_000);
    let _ = fence(&holder.ask("lock x"));
    server.pause(true);
    let clock = Clock::boot();
    let before = clock.now();
    let told = holder.ask("lost x");
    let took = Duration::from_micros(clock.now() - before);
    assert!(told.starts_with("lost"), "{told}");
    assert!(took <= Duration::from_millis(3_500), "told after {took:?}");
    server.pause(false);
    let mut other = locker(&server.url(), 3_000);
    assert!(fence(&other.ask("lock x")) > 0);
}

#[test]
fn tables_that_vanish_are_a_loss_and_come_back() {
    let server = Postgres::start();
    let mut holder = locker(&server.url(), 3_000);
    let _ = fence(&holder.ask("lock x"));
    let tables = ["meta", "line", "claim", "session", "mail", "eviction"];
    let tables = tables.map(|table| format!("leasehold_{table}")).join(", ");
    let _ = server.sql(&format!("DROP TABLE {tables}"));
    let told = holder.ask("lost x");
    assert!(told.starts_with("lost"), "{told}");
    let mut other = locker(&server.url(), 3_000);
    assert!(fence(&other.ask("lock x")) > 0);
}

#[test]
fn a_statement_timeout_is_not_shown() {
    let server = Postgres::with(&["statement_timeout=40ms", "fsync=off"]);
    storm(&server.url(), 8, 2, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsuitable_servers_are_refused_with_the_reason() {
    let server = Postgres::start();
    let refused = |url: String| async move {
        let error = leasehold::connect(&url).await.expect_err("refused");
        (error.kind(), error.to_string())
    };
    let (kind, error) = refused(format!("{}?schema=check", server.url())).await;
    assert_eq!(kind, ErrorKind::Unavailable, "{error}");
    assert!(error.contains("leasehold schema postgres"), "{error}");
    let client = leasehold::connect(&format!("{}?prefix=other_", server.url())).await;
    drop(client.expect("a prefix of its own"));
    let _ = server.sql("UPDATE other_meta SET version = 99");
    let (kind, error) = refused(format!("{}?prefix=other_", server.url())).await;
    assert_eq!(kind, ErrorKind::Unsupported, "{error}");
    assert!(error.contains("version 99"), "{error}");
    let _ = server.sql("CREATE ROLE poor LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC");
    let poor = server.url().replace("lab@", "poor:hunter2@");
    let (kind, error) = refused(poor).await;
    assert_eq!(kind, ErrorKind::Denied, "{error}");
    assert!(
        error.contains("may not be created") && !error.contains("hunter2"),
        "{error}"
    );

    let mut server = server;
    server.kill();
    server.standby();
    let (kind, error) = refused(server.url()).await;
    assert_eq!(kind, ErrorKind::Unsupported, "{error}");
    assert!(error.contains("read-only replica"), "{error}");

    let server = MariaDb::with(&["--read-only=1"]);
    let (kind, error) = refused(server.url()).await;
    assert_eq!(kind, ErrorKind::Unsupported, "{error}");
    assert!(error.contains("read-only"), "{error}");
}

/// A thousand sessions in one line, over a handful of connections: each gets its turn, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_wait_over_a_few_connections() {
    let server = Postgres::start();
    let engine = Sql::from_url(&Url::parse(&server.url()).expect("a URL")).expect("an engine");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (who, name) = (Identity::of_this_process(), Name::new("x").expect("a name"));
    let mut line: Vec<(Arc<dyn Session>, Claim)> = Vec::new();
    for _ in 0..1_000 {
        let tell = tell.clone();
        let inbox = Inbox::new(move |event| drop(tell.send(event)));
        let session = engine.open(&who, inbox).await.expect("a session");
        let claim = Claim::new(name.clone(), Mode::Mutex, Duration::from_secs(600));
        let standing = session.claim(&claim).await.expect("claimed");
        let first = line.is_empty();
        assert_eq!(matches!(standing, Standing::Held(_)), first, "{standing:?}");
        line.push((session, claim));
    }
    let connections = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    let connections: u32 = server.sql(connections).parse().expect("a number");
    println!("1000 sessions use {connections} connections");
    assert!(connections <= 7, "{connections}");
    let (clock, mut last) = (Clock::boot(), 0);
    let before = clock.now();
    for (session, claim) in &line {
        if last > 0 {
            let granted = loop {
                match told.recv().await.expect("an event") {
                    Event::Granted(id, held) => break (id, held.fence.get()),
                    _ => continue,
                }
            };
            assert_eq!(granted.0, claim.id, "out of order");
            assert!(granted.1 > last);
        }
        last += 1;
        let _ = session.release(claim, 1).await.expect("released");
    }
    let took = Duration::from_micros(clock.now() - before);
    println!("1000 hand-overs took {took:?}");
}
