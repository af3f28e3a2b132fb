//! The effect in the caller's own transaction, with the caller's own client, on all three databases: a row lock, a
//! versioned update, and a row that checks fences.
#![expect(
    clippy::duplicate_mod,
    reason = "the examples share a module, as programs of their own"
)]

use leasehold::Fence;
use leasehold::sql::{Conflicts, Database, Retries, Row, Transaction, Update, Value, mark};
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use mysql_async::prelude::Queryable;

struct Pg<'a>(tokio_postgres::Transaction<'a>);

impl Transaction for Pg<'_> {
    type Error = tokio_postgres::Error;

    fn database(&self) -> Database {
        Database::Postgres
    }

    async fn run(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64, Self::Error> {
        let values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = values
            .iter()
            .map(|value| match value {
                Value::Int(number) => number as _,
                Value::Text(text) => text as _,
            })
            .collect();
        self.0.execute(statement, &values).await
    }
}

struct My<'a>(mysql_async::Transaction<'a>);

impl Transaction for My<'_> {
    type Error = mysql_async::Error;

    fn database(&self) -> Database {
        Database::Mysql
    }

    async fn run(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64, Self::Error> {
        let values = values.iter().map(|value| match value {
            Value::Int(number) => mysql_async::Value::Int(*number),
            Value::Text(text) => mysql_async::Value::Bytes(text.as_bytes().to_vec()),
        });
        let values = mysql_async::Params::Positional(values.collect());
        let mut result = self.0.exec_iter(statement, values).await?;
        let changed = result.affected_rows();
        let rows: Vec<mysql_async::Row> = result.collect().await?;
        Ok(changed.max(rows.len() as u64))
    }
}

struct Lite<'a>(rusqlite::Transaction<'a>);

impl Transaction for Lite<'_> {
    type Error = rusqlite::Error;

    fn database(&self) -> Database {
        Database::Sqlite
    }

    #[expect(
        clippy::future_not_send,
        reason = "a connection of SQLite stays on its thread"
    )]
    async fn run(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64, Self::Error> {
        let values = values.iter().map(|value| match *value {
            Value::Int(number) => rusqlite::types::Value::Integer(number),
            Value::Text(text) => rusqlite::types::Value::Text(text.to_owned()),
        });
        let mut statement = self.0.prepare(statement)?;
        let reads = statement.column_count() > 0;
        let mut rows = statement.query(rusqlite::params_from_iter(values))?;
        let mut read = 0;
        while rows.next()?.is_some() {
            read += 1;
        }
        drop(rows);
        drop(statement);
        Ok(if reads { read } else { self.0.changes() })
    }
}

const TABLE: &str =
    "CREATE TABLE stock (id BIGINT PRIMARY KEY, n BIGINT, version BIGINT, fence BIGINT)";

/// The keys that are done.
const DRAWN: &str = "CREATE TABLE drawn (id VARCHAR(255) PRIMARY KEY)";

fn row() -> Row<'static> {
    Row::new("stock", "id", 1).expect("plain names")
}

/// Everything that needs one transaction only.
async fn one<T: Transaction<Error: std::fmt::Debug>>(t: &mut T) {
    let absent = Row::new("stock", "id", 2).expect("plain names");
    assert!(row().lock(t).await.expect("asked"), "the row is there");
    assert!(!absent.lock(t).await.expect("asked"), "it is not");
    let set = [("n", Value::Int(7))];
    let done = row().update_versioned(t, &set, 0).await.expect("asked");
    assert_eq!(done, Update::Done);
    let stale = row().update_versioned(t, &set, 0).await.expect("asked");
    assert_eq!(stale, Update::Refused, "the version has grown");
    for (fence, wanted) in [(9, Update::Done), (9, Update::Done), (8, Update::Refused)] {
        let shown = row().update_fenced(t, &set, Fence::new(fence)).await;
        assert_eq!(shown.expect("asked"), wanted, "fence {fence}");
    }
    let opened = row().update_fenced(t, &[], Fence::new(10)).await;
    assert_eq!(opened.expect("asked"), Update::Done, "nothing to set");
    for (key, first) in [("a", true), ("a", false), ("b", true)] {
        let marked = mark(t, "drawn", "id", key).await.expect("asked");
        assert_eq!(marked, first, "{key}");
    }
}

const TASKS: i64 = 4;
const ROUNDS: i64 = 25;

/// Reads without a lock, and changes the row unless another transaction has.
async fn optimistic(client: &mut tokio_postgres::Client) -> Result<Update, tokio_postgres::Error> {
    let read = client.query_one("SELECT n, version FROM stock WHERE id = 1", &[]);
    let read = read.await?;
    let (n, version): (i64, i64) = (read.get(0), read.get(1));
    let mut t = Pg(client.transaction().await?);
    let set = [("n", Value::Int(n + 1))];
    let done = row().update_versioned(&mut t, &set, version).await?;
    t.0.commit().await?;
    Ok(done)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let server = Postgres::start();
    let _ = server.sql(&format!(
        "{TABLE}; {DRAWN}; INSERT INTO stock VALUES (1, 0, 0, 0)"
    ));
    let connect = async || {
        let url = server.url();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .expect("connected");
        drop(tokio::spawn(connection));
        client
    };
    let mut client = connect().await;
    one(&mut Pg(client.transaction().await.expect("begun"))).await;
    // The transaction was dropped: nothing of it stayed.
    let mut workers = tokio::task::JoinSet::new();
    for worker in 0..TASKS {
        let mut client = connect().await;
        let _ = workers.spawn(async move {
            let mut drawn = 0;
            for round in 0..ROUNDS {
                if worker % 2 == 0 {
                    let mut t = Pg(client.transaction().await.expect("begun"));
                    let first = mark(&mut t, "drawn", "id", &round.to_string()).await;
                    drawn += i64::from(first.expect("asked"));
                    assert!(row().lock(&mut t).await.expect("locked"));
                    let read =
                        t.0.query_one("SELECT n, version FROM stock WHERE id = 1", &[]);
                    let read = read.await.expect("read");
                    let (n, version): (i64, i64) = (read.get(0), read.get(1));
                    let set = [("n", Value::Int(n + 1))];
                    let done = row().update_versioned(&mut t, &set, version).await;
                    assert_eq!(done.expect("asked"), Update::Done, "the row is ours");
                    t.0.commit().await.expect("committed");
                } else {
                    let mut retries = Retries::at_most(200);
                    while optimistic(&mut client).await.expect("asked") == Update::Refused {
                        retries.again().await.expect("within 200 tries");
                    }
                }
            }
            drawn
        });
    }
    let drawn: i64 = workers.join_all().await.into_iter().sum();
    assert_eq!(drawn, ROUNDS, "each key was the first one once");
    assert_eq!(
        server.sql("SELECT n FROM stock"),
        (TASKS * ROUNDS).to_string()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb() {
    let server = MariaDb::start();
    let _ = server.sql(&format!(
        "USE lab; {TABLE}; {DRAWN}; INSERT INTO stock VALUES (1, 0, 0, 0)"
    ));
    let url = server.url();
    let connect = async || {
        let opts = mysql_async::Opts::from_url(&url).expect("a URL");
        // Rows that were found count, changed or not.
        let opts = mysql_async::OptsBuilder::from_opts(opts).client_found_rows(true);
        mysql_async::Conn::new(opts).await.expect("connected")
    };
    let mut client = connect().await;
    let t = client
        .start_transaction(mysql_async::TxOpts::default())
        .await;
    let mut t = My(t.expect("begun"));
    one(&mut t).await;
    t.0.rollback().await.expect("rolled back");
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let mut client = connect().await;
        let _ = workers.spawn(async move {
            let mut drawn = 0;
            for round in 0..ROUNDS {
                let mut opts = mysql_async::TxOpts::default();
                let _ = opts.with_isolation_level(mysql_async::IsolationLevel::ReadCommitted);
                let mut t = My(client.start_transaction(opts).await.expect("begun"));
                let first = mark(&mut t, "drawn", "id", &round.to_string()).await;
                drawn += i64::from(first.expect("asked"));
                assert!(row().lock(&mut t).await.expect("locked"));
                let read: Option<(i64, i64)> =
                    t.0.query_first("SELECT n, version FROM stock WHERE id = 1")
                        .await
                        .expect("read");
                let (n, version) = read.expect("there");
                let set = [("n", Value::Int(n + 1))];
                let done = row().update_versioned(&mut t, &set, version).await;
                assert_eq!(done.expect("asked"), Update::Done, "the row is ours");
                t.0.commit().await.expect("committed");
            }
            drawn
        });
    }
    let drawn: i64 = workers.join_all().await.into_iter().sum();
    assert_eq!(drawn, ROUNDS, "each key was the first one once");
    let n = server.sql("SELECT n FROM lab.stock");
    assert_eq!(n, (TASKS * ROUNDS).to_string());
}

#[tokio::test]
async fn sqlite() {
    let mut file = rusqlite::Connection::open_in_memory().expect("opened");
    let _ = file.execute(TABLE, []).expect("created");
    let _ = file.execute(DRAWN, []).expect("created");
    let _ = file
        .execute("INSERT INTO stock VALUES (1, 0, 0, 0)", [])
        .expect("there");
    let immediate = rusqlite::TransactionBehavior::Immediate;
    let t = file.transaction_with_behavior(immediate).expect("begun");
    one(&mut Lite(t)).await;
    let left: i64 = file
        .query_row("SELECT n FROM stock", [], |row| row.get(0))
        .expect("read");
    assert_eq!(
        left, 0,
        "a transaction that is not committed leaves nothing"
    );
}

#[path = "../../../leasehold/examples/fence_check.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod fence_check;
#[path = "../../../leasehold/examples/row_lock.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod row_lock;
#[path = "../../../leasehold/examples/versioned_update.rs"]
#[expect(dead_code, reason = "its main is not called")]
mod versioned_update;

/// The examples, with threads in each other's way.
fn examples(url: &str) {
    assert_eq!(row_lock::run(url).expect("it runs"), 100);
    let (stock, conflicts) = versioned_update::run(url).expect("it runs");
    assert_eq!(stock, 100);
    println!("{conflicts} conflicts");
    assert!(conflicts > 0, "no transaction was in the way of another");
    assert_eq!(fence_check::run(url).expect("it runs"), Update::Refused);
}

#[test]
fn examples_on_postgres() {
    examples(&Postgres::start().url());
}

#[test]
fn examples_on_mariadb() {
    examples(&MariaDb::start().url());
}

#[test]
fn examples_on_sqlite() {
    let dir = tempfile::tempdir().expect("a directory");
    examples(&format!("sqlite:{}/shop.db", dir.path().display()));
}

#[tokio::test]
async fn conflicts_are_bounded_and_told() {
    let mut retries = Retries::at_most(3);
    for _ in 0..2 {
        retries.again().await.expect("not the last");
    }
    assert_eq!(retries.again().await, Err(Conflicts { tries: 3 }));
}
