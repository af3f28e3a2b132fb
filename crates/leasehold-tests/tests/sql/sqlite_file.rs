//! SQLite's file: another program has it, removes it, or puts another one in its place.

use std::path::Path;
use std::time::Duration;

use leasehold::engine::{Clock, Query};
use leasehold::{Client, ConnectOptions, Error, ErrorKind, GuardState, Released};
use leasehold_testkit::poll::eventually;

const LEASE: Duration = Duration::from_secs(3);

async fn client(url: &str) -> Client {
    let client = ConnectOptions::new().lease(LEASE).connect(url).await;
    client.expect("connected")
}

/// A file of SQLite that another program writes for longer than callers wait: each is told so, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_while_another_program_has_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("locks.db");
    let client = client(&format!("sqlite:{}", path.display())).await;
    let guard = client.mutex("warm").lock().await.expect("locked");
    let _ = guard.release().await.expect("released");
    let other = rusqlite::Connection::open(&path).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("begun");
    let mut waits = Vec::new();
    for n in 0..12 {
        let client = client.clone();
        waits.push(tokio::spawn(async move {
            let mutex = client.mutex(format!("busy:{n}"));
            mutex.lock_within(Duration::from_millis(100)).await
        }));
    }
    for wait in waits {
        // Not "busy": the line of the name was never seen.
        let error = wait.await.expect("no panic").expect_err("the file is busy");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
    other.execute_batch("COMMIT").expect("ended");
    let clock = Clock::boot();
    let before = clock.now();
    for n in 0..12 {
        let guard = client.mutex(format!("busy:{n}")).lock().await;
        let _ = guard.expect("locked").release().await.expect("released");
    }
    let took = Duration::from_micros(clock.now() - before);
    assert!(
        took < Duration::from_secs(1),
        "a name stayed locked: {took:?}"
    );
    let left = client.inspect(&Query::all()).await.expect("seen");
    assert!(left.is_empty(), "{left:?}");
}

/// Every operation of a client, while another program writes for longer than they wait: each error is true, and what it
/// left open is made up for once the file is free. No lease ends meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_answers_every_operation_while_another_program_has_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    let open = async || {
        let client = ConnectOptions::new().lease(LEASE * 20).connect(&url).await;
        client.expect("connected")
    };
    let (client, other) = (open().await, open().await);
    let held = client.mutex("held").lock().await.expect("locked");
    let released = client.mutex("released").lock().await.expect("locked");
    let writer = client.rwlock("downgraded").write().await.expect("locked");
    let victim = other.mutex("evicted").lock().await.expect("locked");
    let file = rusqlite::Connection::open(&path).expect("opened");
    file.execute_batch("BEGIN IMMEDIATE").expect("begun");
    let (mutex, query) = (client.mutex("tried"), Query::all());
    let (tried, released, downgraded, evicted, seen) = tokio::join!(
        mutex.try_lock(),
        released.release(),
        writer.downgrade(),
        client.evict("evicted", "a test"),
        client.inspect(&query),
    );
    let errors: [(&str, Error); 4] = [
        ("try", tried.map(drop).expect_err("the file is busy")),
        ("release", released.map(drop).expect_err("the file is busy")),
        (
            "downgrade",
            downgraded.map(drop).expect_err("the file is busy"),
        ),
        ("evict", evicted.map(drop).expect_err("the file is busy")),
    ];
    for (what, error) in errors {
        assert!(error.is_transient(), "{what}: {error}");
        println!("{what}: {error}");
    }
    // Readers do not wait for the one that writes.
    let seen = seen.expect("seen");
    let seen: Vec<_> = seen.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(seen, ["downgraded", "evicted", "held", "released"]);
    assert!(held.check().is_ok() && victim.check().is_ok());
    file.execute_batch("COMMIT").expect("ended");
    let clock = Clock::boot();
    let start = clock.now();
    for name in ["tried", "released", "downgraded"] {
        let guard = other.mutex(name).lock().await.expect("free");
        let _ = guard.release().await.expect("released");
    }
    let took = Duration::from_micros(clock.now() - start);
    assert!(took < LEASE, "a name stayed locked for {took:?}");
    for guard in [held, victim] {
        assert_eq!(guard.release().await.expect("told"), Released::Released);
    }
}

/// The file and those beside it go, or get other names.
fn take_away(dir: &Path, moved: bool) {
    for end in ["", "-wal", "-shm"] {
        let from = dir.join(format!("locks.db{end}"));
        let gone = match moved {
            true => std::fs::rename(&from, dir.join(format!("old.db{end}"))),
            false => std::fs::remove_file(&from),
        };
        // The two beside it are not always there.
        assert!(gone.is_ok() || !end.is_empty(), "{gone:?}");
    }
}

/// A file that is removed or replaced under its users: the holder is told before its lease ends, and goes on in the
/// file that the others see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_whose_file_is_replaced() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    let holder = client(&url).await;
    for moved in [false, true] {
        let guard = holder.mutex("x").lock().await.expect("locked");
        take_away(dir.path(), moved);
        let other = client(&url).await;
        let theirs = other.mutex("x").lock().await.expect("nothing is there");
        let why = tokio::time::timeout(LEASE, guard.lost())
            .await
            .expect("told");
        assert!(
            format!("{why:?}").contains("removed or replaced"),
            "{why:?}"
        );
        let busy = eventually("the holder uses the new file", async || {
            let tried = holder.mutex("x").try_lock().await;
            tried.map_err(|error| error.to_string())
        })
        .await;
        assert!(busy.is_none(), "the other one holds it");
        assert_eq!(theirs.state(), GuardState::Valid);
        let _ = theirs.release().await.expect("released");
        drop(guard);
        let guard = holder.mutex("x").lock().await.expect("free");
        let _ = guard.release().await.expect("released");
    }
}

/// Nothing is asked of the file meanwhile, and no heartbeat is due for a long time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_whose_file_is_replaced_tells_long_before_a_heartbeat() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    let holder = ConnectOptions::new().lease(LEASE * 100).connect(&url).await;
    let holder = holder.expect("connected");
    for _ in 0..3 {
        let guard = holder.mutex("x").lock().await.expect("locked");
        take_away(dir.path(), true);
        let clock = Clock::boot();
        let start = clock.now();
        let why = tokio::time::timeout(LEASE * 10, guard.lost()).await;
        let took = Duration::from_micros(clock.now() - start);
        let why = why.expect("told");
        assert!(took < LEASE, "told after {took:?}: {why:?}");
    }
}
