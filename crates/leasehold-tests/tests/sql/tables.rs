//! The rows of a database's tables, their time, and the worth of an earlier boot.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Name;
use leasehold::conformance::raw::heartbeat;
use leasehold::engine::{Claim, Clock, Engine, Identity, Inbox, Mode, Session, Sql, Standing, Url};
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;

async fn open(engine: &Sql) -> Arc<dyn Session> {
    let who = Identity::of_this_process();
    let opened = engine.open(&who, Inbox::new(|_| {})).await;
    opened.expect("a session")
}

fn claim(name: &str) -> Claim {
    let name = Name::new(name).expect("a name");
    Claim::new(name, Mode::Mutex, Duration::from_secs(3_600))
}

async fn hold(session: &Arc<dyn Session>, claim: &Claim) -> u64 {
    match session.claim(claim).await.expect("claimed") {
        Standing::Held(held) => held.fence.get(),
        other => panic!("{other:?}"),
    }
}

/// Uses a name once; answers with its fence.
async fn visit(session: &Arc<dyn Session>, name: &str) -> u64 {
    let claim = claim(name);
    let fence = hold(session, &claim).await;
    let _ = session.release(&claim, 1).await.expect("released");
    fence
}

/// Rows of names unused for ten minutes go, those in use stay, and the next fence of a name whose row is
/// gone is larger than its last.
async fn cleaning(url: &str, sql: impl Fn(&str) -> String + Send + Sync) {
    let clock = Clock::stopped();
    clock.skip(Duration::from_secs(1_000_000));
    let engine = Sql::on_clock(&Url::parse(url).expect("a URL"), clock.clone());
    let engine = engine.expect("an engine");
    let session = open(&engine).await;
    let rows = || sql("SELECT count(*) FROM leasehold_line");
    let kept = claim("kept");
    let _ = hold(&session, &kept).await;
    let mut last = 0;
    for _ in 0..3 {
        last = visit(&session, "idle:1").await;
    }
    let _ = visit(&session, "idle:2").await;
    engine.clean().await.expect("cleaned");
    assert_eq!(rows(), "3", "nothing is idle for long");
    clock.skip(Duration::from_secs(601));
    engine.clean().await.expect("cleaned");
    assert_eq!(
        rows(),
        "3",
        "first new names must start above the old fences"
    );
    clock.skip(Duration::from_secs(61));
    engine.clean().await.expect("cleaned");
    assert_eq!(rows(), "1", "only what is held is left");
    for name in ["idle:1", "new"] {
        let fence = visit(&session, name).await;
        assert!(fence > last, "{name}: {fence} after {last}");
    }
    let standings = heartbeat(&*session, &[Arc::new(kept)]).await;
    assert!(
        matches!(standings[..], [Standing::Held(_)]),
        "{standings:?}"
    );
    session.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_removes_idle_rows() {
    let server = Postgres::start();
    cleaning(&server.url(), |statement| server.sql(statement)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_removes_idle_rows() {
    let server = MariaDb::start();
    cleaning(&server.url(), |statement| {
        server.sql(&format!("USE lab; {statement}"))
    })
    .await;
}

/// Tables made by hand from the printed statements are as good as those that a client makes.
async fn by_hand(database: &str, url: &str, sql: impl Fn(&str) + Send + Sync) {
    let check = format!("{url}?schema=check&prefix=hand_");
    let error = leasehold::connect(&check).await.expect_err("no tables yet");
    assert!(error.to_string().contains("leasehold schema"), "{error}");
    sql(&leasehold::sql::schema(database, "hand_").expect("known"));
    let client = leasehold::connect(&check).await.expect("there now");
    let guard = client.mutex("x").lock().await.expect("locked");
    let _ = guard.release().await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_made_by_hand() {
    let server = Postgres::start();
    by_hand("postgres", &server.url(), |schema| drop(server.sql(schema))).await;
    let server = MariaDb::start();
    by_hand("mysql", &server.url(), |schema| {
        drop(server.sql(&format!("USE lab; {schema}")));
    })
    .await;
    let file = File::new();
    by_hand("sqlite", &file.url(), |schema| {
        file.connection().execute_batch(schema).expect("created");
    })
    .await;
}

/// A file of SQLite, looked at beside the engine.
struct File(tempfile::TempDir);

impl File {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn url(&self) -> String {
        format!("sqlite:{}/locks.db", self.0.path().display())
    }

    fn connection(&self) -> rusqlite::Connection {
        let opened = rusqlite::Connection::open(self.0.path().join("locks.db"));
        opened.expect("opened")
    }

    fn number(&self, query: &str) -> u64 {
        let number = self
            .connection()
            .query_row(query, [], |row| row.get::<_, i64>(0));
        number.expect("a number").unsigned_abs()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_removes_idle_rows() {
    let file = File::new();
    cleaning(&file.url(), |statement| file.number(statement).to_string()).await;
}

/// Rows of an earlier boot of the machine hold nothing, and fences make a leap: a power failure may have taken
/// the last commits with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_after_a_boot() {
    let file = File::new();
    let engine = || Sql::from_url(&Url::parse(&file.url()).expect("a URL")).expect("an engine");
    let before = engine();
    let (holder, waiter) = (open(&before).await, open(&before).await);
    let first = hold(&holder, &claim("x")).await;
    let waits = waiter.claim(&claim("x")).await.expect("claimed");
    assert!(matches!(waits, Standing::Waiting { .. }), "{waits:?}");
    drop((holder, waiter, before));

    // The same boot: everything is as it was.
    let same = engine();
    let session = open(&same).await;
    let busy = session.claim(&claim("x")).await.expect("claimed");
    assert!(matches!(busy, Standing::Waiting { .. }), "{busy:?}");
    assert_eq!(file.number("SELECT count(*) FROM leasehold_claim"), 3);
    drop((session, same));

    let changed = file.connection();
    let changed = changed.execute("UPDATE leasehold_meta SET boot = 'earlier'", []);
    assert_eq!(changed.expect("changed"), 1);
    let after = engine();
    let session = open(&after).await;
    assert_eq!(file.number("SELECT count(*) FROM leasehold_claim"), 0);
    let leap = 1 << 20;
    let fence = hold(&session, &claim("x")).await;
    assert!(fence > first + leap, "{fence} after {first}");
    let floor = || file.number("SELECT floor FROM leasehold_meta");
    assert_eq!(
        floor(),
        leap,
        "a name of which nothing is left begins above it"
    );
    // Only once.
    let again = open(&engine()).await;
    let _ = hold(&again, &claim("newer")).await;
    assert_eq!(floor(), leap);
}
