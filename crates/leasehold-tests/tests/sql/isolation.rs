//! One line that is stuck or damaged costs that line alone; a server that is silent leaves no work behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::engine::{Clock, Query};
use leasehold::{Client, ConnectOptions, ErrorKind, GuardState};
use leasehold_testkit::poll::{eventually, until};
use leasehold_testkit::proxy::{Fate, Proxy};
use leasehold_testkit::servers::database::Host;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;

const LEASE: Duration = Duration::from_secs(3);

async fn client(url: &str) -> Client {
    let client = ConnectOptions::new().lease(LEASE).connect(url).await;
    client.expect("connected")
}

/// A statement in a transaction of another program, until it is dropped.
struct Elsewhere(std::process::Child);

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn psql(port: u16, statements: &str) -> Elsewhere {
    let mut psql = std::process::Command::new("psql");
    let _ = psql.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "lab"]);
    let started = psql.args(["-d", "postgres", "-XAtq", "-c", statements]);
    Elsewhere(started.spawn().expect("psql"))
}

fn mariadb(port: u16, statements: &str) -> Elsewhere {
    let mut client = std::process::Command::new("mariadb");
    let _ = client.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port.to_string()]);
    let started = client.args(["-u", "root", "lab", "-e", statements]);
    Elsewhere(started.spawn().expect("mariadb"))
}

/// Another transaction has the row of one name: the other names of the client are kept, taken and released.
async fn one_row_is_locked(url: &str, server: &Host, lock: impl Fn(&str) -> Elsewhere) {
    let client = client(url).await;
    let mut kept = Vec::new();
    for n in 0..20 {
        let guard = client.mutex(format!("kept:{n}")).lock().await;
        kept.push(guard.expect("locked"));
    }
    let stuck = client.mutex("stuck").lock().await.expect("locked");
    // A crowd, whose claims are rows of their own: the row of a waiter is locked, too.
    let (first, other) = (
        client.mutex("crowd").lock().await.expect("locked"),
        self::client(url).await,
    );
    let waits = tokio::spawn(async move { other.mutex("crowd").lock().await.map(drop) });
    eventually("the other waits", async || {
        let lines = client.inspect(&Query::all()).await.expect("seen");
        let waiters: usize = lines.iter().map(|line| line.waiters.len()).sum();
        (waiters == 1).then_some(()).ok_or(format!("{lines:?}"))
    })
    .await;
    let blocker = lock(
        "SELECT 1 FROM leasehold_line WHERE name = 'stuck' FOR UPDATE; \
         SELECT 1 FROM leasehold_claim FOR UPDATE; SELECT",
    );
    until("the row is locked", || {
        let busy = server.try_sql(match url.starts_with("postgres") {
            true => "SELECT 1 FROM leasehold_line WHERE name = 'stuck' FOR UPDATE NOWAIT",
            false => "SELECT 1 FROM lab.leasehold_line WHERE name = 'stuck' FOR UPDATE NOWAIT",
        });
        busy.err().map(drop).ok_or_else(String::new)
    });
    let clock = Clock::boot();
    let end = clock.now() + 2 * LEASE.as_micros() as u64;
    let mut rounds = 0;
    while clock.now() < end {
        let before = clock.now();
        let guard = client.mutex(format!("new:{rounds}")).lock().await;
        let _ = guard.expect("locked").release().await.expect("released");
        let took = Duration::from_micros(clock.now() - before);
        assert!(took < Duration::from_secs(1), "{took:?}");
        for guard in &kept {
            assert_eq!(guard.state(), GuardState::Valid, "after {rounds} rounds");
        }
        rounds += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("{rounds} locks beside a stuck line");
    assert!(stuck.check().is_err(), "its own line could not be renewed");
    drop(blocker);
    for guard in kept {
        let _ = guard.release().await.expect("released");
    }
    drop((first, stuck));
    let _ = waits.await.expect("no panic");
    let guard = client.mutex("stuck").lock().await.expect("free again");
    let _ = guard.release().await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_beside_a_locked_row() {
    let server = Postgres::start();
    one_row_is_locked(&server.url(), &server, |locks| {
        psql(server.port, &format!("BEGIN; {locks} pg_sleep(10)"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_beside_a_locked_row() {
    let server = MariaDb::start();
    one_row_is_locked(&server.url(), &server, |locks| {
        mariadb(
            server.port,
            &format!("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION; {locks} SLEEP(10)"),
        )
    })
    .await;
}

/// A row with what no client writes: its own line is in trouble, and says so; no other is.
async fn one_row_is_damaged(url: &str, damage: impl Fn(&str)) {
    let client = client(url).await;
    let healthy = client.mutex("healthy").lock().await.expect("locked");
    let damaged = client.mutex("damaged").lock().await.expect("locked");
    damage("UPDATE leasehold_line SET capacity = -1, lease = -1 WHERE name = 'damaged'");
    let seen = client.inspect(&Query::all()).await;
    assert_eq!(seen.expect("the others are seen").len(), 1);
    let why = damaged.lost().await;
    println!("{why}");
    let clock = Clock::boot();
    let end = clock.now() + 2 * LEASE.as_micros() as u64;
    while clock.now() < end {
        assert_eq!(healthy.state(), GuardState::Valid);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let _ = healthy.release().await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_with_a_damaged_row() {
    let server = Postgres::start();
    one_row_is_damaged(&server.url(), |statement| drop(server.sql(statement))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_with_a_damaged_row() {
    let server = MariaDb::start();
    one_row_is_damaged(&server.url(), |statement| {
        drop(server.sql(&format!("USE lab; {statement}")));
    })
    .await;
}

/// Fifty tasks that try every 100 ms while the server says nothing: none of that is done when it is back.
async fn silence(url: &str, proxy: &Proxy, claims: impl Fn() -> String + Send + Sync) {
    let client = client(&format!("{url}?timeout=1")).await;
    let guard = client.mutex("warm").lock().await.expect("locked");
    let _ = guard.release().await.expect("released");
    proxy.set_both(Fate::Hold);
    let clock = Clock::boot();
    let (end, tries) = (clock.now() + 6_000_000, Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (client, clock, tries) = (client.clone(), clock.clone(), tries.clone());
            tokio::spawn(async move {
                while clock.now() < end {
                    let mutex = client.mutex(format!("name:{n}:{}", clock.now()));
                    let tried = tokio::time::timeout(Duration::from_millis(100), mutex.try_lock());
                    let _ = tried.await;
                    let _ = tries.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    proxy.set_both(Fate::Pass);
    let before = clock.now();
    let guard = eventually("the client locks again", async || {
        let guard = client.mutex("back").try_lock().await;
        guard
            .map_err(|error| error.to_string())?
            .ok_or_else(String::new)
    })
    .await;
    let took = Duration::from_micros(clock.now() - before);
    let tries = tries.load(Ordering::SeqCst);
    println!("{tries} tries in vain; back after {took:?}");
    assert!(took < Duration::from_secs(1), "back after {took:?}");
    let _ = guard.release().await.expect("released");
    eventually("nothing of the tries is left", async || {
        let left = claims();
        (left == "0").then_some(()).ok_or(left)
    })
    .await;
    let since = Duration::from_micros(clock.now() - before);
    assert!(since < LEASE * 4 / 3, "after {since:?}");
}

/// How many claims hold a name. A statement under way when its connection was given up may reach the server later, and
/// then ends with its lease.
fn held(now: &str, none: &str) -> String {
    format!("SELECT count(*) FROM leasehold_line WHERE id <> {none} AND deadline > {now}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_after_a_silence() {
    let server = Postgres::start();
    let proxy = Proxy::before(server.port);
    let now = "extract(epoch FROM clock_timestamp()) * 1000000";
    let held = held(now, "'\\x00000000000000000000000000000000'::bytea");
    silence(&server.url_by(proxy.port), &proxy, || server.sql(&held)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_after_a_silence() {
    let server = MariaDb::start();
    let proxy = Proxy::before(server.port);
    let now = "1000000 * UNIX_TIMESTAMP(SYSDATE(6))";
    let held = held(now, "x'00000000000000000000000000000000'");
    silence(&server.url_by(proxy.port), &proxy, || {
        server.sql(&format!("USE lab; {held}"))
    })
    .await;
}

/// The error about a server that is not there: where it was looked for, and why not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_connecting_name_the_server() {
    let nothing = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = nothing.local_addr().expect("an address").port();
    drop(nothing);
    for url in [
        format!("postgres://lab@127.0.0.1:{port}/postgres"),
        format!("mysql://root@127.0.0.1:{port}/lab"),
    ] {
        let connecting = tokio::time::timeout(Duration::from_secs(60), leasehold::connect(&url));
        let error = connecting
            .await
            .expect("an end")
            .expect_err("nothing is there");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let text = error.to_string();
        let wanted = format!("no connection to 127.0.0.1:{port}: Connection refused");
        assert!(text.contains(&wanted), "{text}");
        assert_eq!(text.matches("refused").count(), 1, "{text}");
    }
    let (postgres, mariadb) = (Postgres::start(), MariaDb::start());
    for url in [
        postgres.url().replace("/postgres", "/nowhere"),
        mariadb.url().replace("/lab", "/nowhere"),
    ] {
        let error = leasehold::connect(&url)
            .await
            .expect_err("no such database");
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("nowhere"), "{error}");
    }
}
