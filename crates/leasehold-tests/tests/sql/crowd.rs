//! A crowd on PostgreSQL: what its statements decide after they waited for the line's row, and commits that do not wait
//! for the disk.

use std::time::Duration;

use leasehold::engine::{Fault, Query, Verdict};
use leasehold::{Client, ConnectOptions, Guard};
use leasehold_testkit::poll::{eventually, until};
use leasehold_testkit::servers::postgres::Postgres;
use tokio::task::JoinHandle;

type Waits = JoinHandle<leasehold::Result<Guard>>;

/// A third of it, the time between two heartbeats, is longer than a test waits for a lock: a heartbeat would grant to a
/// waiter that a hand-over has passed by.
const LEASE: Duration = Duration::from_secs(600);

async fn client(url: &str) -> Client {
    let client = ConnectOptions::new().lease(LEASE);
    client.connect(url).await.expect("connected")
}

/// Waits for the lock in a client of its own, behind as many as `before`.
async fn wait(url: &str, before: usize) -> Waits {
    let (client, looks) = (client(url).await, client(url).await);
    let waits = tokio::spawn(async move { client.mutex("x").strict().lock().await });
    eventually("it waits", async || {
        let lines = looks.inspect(&Query::all()).await.expect("seen");
        let waiters = lines.first().map_or(0, |line| line.waiters.len());
        (waiters > before).then_some(()).ok_or(format!("{lines:?}"))
    })
    .await;
    waits
}

async fn granted(waits: Waits) -> Guard {
    let granted = tokio::time::timeout(Duration::from_secs(20), waits).await;
    let granted = granted.expect("the lock came in time");
    granted.expect("no panic").expect("granted")
}

/// A transaction of another program that has locked the line's row, until it is told to end.
fn lock_row(server: &Postgres) -> std::process::Child {
    let mut psql = std::process::Command::new("psql");
    let _ = psql.args(["-h", "127.0.0.1", "-p", &server.port.to_string()]);
    let _ = psql.args(["-U", "lab", "-d", "postgres", "-XAtq"]);
    let mut psql = psql
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("psql");
    say(&mut psql, "BEGIN; SELECT FROM leasehold_line FOR UPDATE;");
    until("the row is locked", || {
        let free = server.try_sql("SELECT FROM leasehold_line FOR UPDATE NOWAIT");
        free.err().map(drop).ok_or_else(String::new)
    });
    psql
}

fn say(psql: &mut std::process::Child, statement: &str) {
    use std::io::Write;
    let stdin = psql.stdin.as_mut().expect("a pipe");
    writeln!(stdin, "{statement}").expect("psql reads");
}

fn blocked(server: &Postgres, statements: usize) {
    let query = "SELECT count(*) FROM pg_stat_activity \
         WHERE application_name = 'leasehold' AND wait_event_type = 'Lock'";
    until("statements wait for the row", || match server.sql(query) {
        count if count == statements.to_string() => Ok(()),
        count => Err(count),
    });
}

/// A hand-over waits for the row behind the leaving of the very claim that it would have handed over to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_goes_by_what_it_finds_after_it_waited() {
    let server = Postgres::start();
    let url = server.url();
    let first = client(&url).await.mutex("x").strict().lock().await;
    // Its client has waited, so it knows a crowd.
    let holder = wait(&url, 0).await;
    let _ = first.expect("locked").release().await.expect("released");
    let holder = granted(holder).await;
    let (leaves, stays) = (wait(&url, 0).await, wait(&url, 1).await);
    let last = wait(&url, 2).await;

    let mut row = lock_row(&server);
    leaves.abort();
    blocked(&server, 1);
    let fence = holder.fence();
    let release = tokio::spawn(holder.release());
    blocked(&server, 2);
    say(&mut row, "COMMIT; \\q");
    let _ = row.wait().expect("psql ends");

    let _ = release.await.expect("no panic").expect("released");
    let guard = granted(stays).await;
    assert!(guard.fence() > fence);
    let _ = guard.release().await.expect("released");
    let _ = granted(last).await.release().await.expect("released");
}

/// How often the server has written its log to disk. A process of it has told all it counted once it has ended.
fn syncs(server: &Postgres) -> u64 {
    let ours = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold'";
    until("the connections are closed", || match server.sql(ours) {
        count if count == "0" => Ok(()),
        count => Err(count),
    });
    let syncs = server.sql("SELECT wal_sync FROM pg_stat_wal");
    syncs.parse().unwrap_or_else(|_| panic!("{syncs:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynchronous_commits_do_not_wait_for_the_disk() {
    const ROUNDS: u64 = 200;
    let server = Postgres::durable();
    let mut seen = Vec::new();
    for commit in ["durable", "async"] {
        let before = syncs(&server);
        let client = client(&format!("{}?commit={commit}", server.url())).await;
        let mutex = client.mutex("x").strict();
        for _ in 0..ROUNDS {
            let guard = mutex.lock().await.expect("locked");
            let _ = guard.release().await.expect("released");
        }
        drop((mutex, client));
        seen.push(syncs(&server) - before);
    }
    println!("syncs of {ROUNDS} locks, durable and async: {seen:?}");
    assert!(seen[0] >= 2 * ROUNDS, "{seen:?}");
    assert!(seen[1] < ROUNDS, "{seen:?}");
}

/// What the table of promises says of `commit=async`: a crash may lose grants, and fences grow all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_over_commits_that_a_crash_has_lost() {
    let mut server = Postgres::durable();
    let url = format!("{}?commit=async", server.url());
    let promised = leasehold::guarantees(&url).expect("a URL");
    assert_eq!(promised.under(Fault::ServerCrash), Verdict::Fenced);
    let durable = leasehold::guarantees(&server.url()).expect("a URL");
    assert_eq!(durable.under(Fault::ServerCrash), Verdict::Kept);

    let early = client(&url).await;
    let lock = async |client: &Client| client.mutex("x").strict().lock().await.expect("locked");
    let _ = lock(&early).await.release().await.expect("released");
    let _ = server.sql("CREATE TABLE saved AS SELECT * FROM leasehold_line");
    let mut guard = lock(&early).await;
    for _ in 0..50 {
        let fence = guard.fence();
        let _ = guard.release().await.expect("released");
        guard = lock(&early).await;
        assert!(guard.fence() > fence);
    }
    // The log ends before all of these, and the holder has not heard of it yet.
    let _ = server.sql(
        "BEGIN; DELETE FROM leasehold_line; INSERT INTO leasehold_line SELECT * FROM saved; COMMIT",
    );
    let next = lock(&client(&url).await).await;
    assert!(next.fence() > guard.fence(), "lost rows");
    let fence = next.fence();
    server.kill();
    server.restart();
    let _ = server.sql("UPDATE leasehold_line SET deadline = 0");
    assert!(lock(&client(&url).await).await.fence() > fence, "a crash");
}
