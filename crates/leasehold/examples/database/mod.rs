//! The caller's own database for the examples of effects: three clients behind one value, and a table `stock`.

use std::error::Error;

use leasehold::sql::{Database, Transaction, Value};
use mysql_async::prelude::Queryable;
use tokio_postgres::types::ToSql;

/// Any error of a client.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A connection of the caller's own.
pub(crate) enum Connection {
    Postgres(tokio_postgres::Client),
    Mysql(mysql_async::Conn),
    Sqlite(rusqlite::Connection),
}

/// A transaction of the caller's own.
pub(crate) enum Begun<'a> {
    Postgres(tokio_postgres::Transaction<'a>),
    Mysql(mysql_async::Transaction<'a>),
    Sqlite(rusqlite::Transaction<'a>),
}

impl Connection {
    /// By a URL as Leasehold has it.
    pub(crate) async fn open(url: &str) -> Outcome<Self> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let file = rusqlite::Connection::open(path)?;
            file.busy_timeout(std::time::Duration::from_secs(20))?;
            file.pragma_update(None, "journal_mode", "wal")?;
            return Ok(Self::Sqlite(file));
        }
        if url.starts_with("mysql:") {
            let opts = mysql_async::Opts::from_url(url)?;
            // Rows that were found count, changed or not.
            let opts = mysql_async::OptsBuilder::from_opts(opts).client_found_rows(true);
            return Ok(Self::Mysql(mysql_async::Conn::new(opts).await?));
        }
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        drop(tokio::runtime::Handle::current().spawn(connection));
        Ok(Self::Postgres(client))
    }

    /// A new table with one row.
    pub(crate) async fn create_stock(&mut self) -> Outcome<()> {
        for statement in [
            "DROP TABLE IF EXISTS stock",
            "CREATE TABLE stock (id BIGINT PRIMARY KEY, n BIGINT, version BIGINT, fence BIGINT)",
            "INSERT INTO stock VALUES (1, 0, 0, 0)",
        ] {
            match self {
                Self::Postgres(client) => client.batch_execute(statement).await?,
                Self::Mysql(conn) => conn.query_drop(statement).await?,
                Self::Sqlite(file) => file.execute_batch(statement)?,
            }
        }
        Ok(())
    }

    /// SQLite locks its file here, and only so does it wait for others.
    pub(crate) async fn begin(&mut self) -> Outcome<Begun<'_>> {
        Ok(match self {
            Self::Postgres(client) => Begun::Postgres(client.transaction().await?),
            Self::Mysql(conn) => {
                // A row that was waited for is read as it is then.
                let mut opts = mysql_async::TxOpts::default();
                let _ = opts.with_isolation_level(mysql_async::IsolationLevel::ReadCommitted);
                Begun::Mysql(conn.start_transaction(opts).await?)
            }
            Self::Sqlite(file) => {
                let immediate = rusqlite::TransactionBehavior::Immediate;
                Begun::Sqlite(file.transaction_with_behavior(immediate)?)
            }
        })
    }
}

impl Begun<'_> {
    /// How many pieces there are, and the version of the row.
    #[expect(clippy::future_not_send, reason = "SQLite stays on its thread")]
    pub(crate) async fn stock(&mut self) -> Outcome<(i64, i64)> {
        let query = "SELECT n, version FROM stock WHERE id = 1";
        Ok(match self {
            Self::Postgres(t) => {
                let row = t.query_one(query, &[]).await?;
                (row.get(0), row.get(1))
            }
            Self::Mysql(t) => t.query_first(query).await?.ok_or("no row")?,
            Self::Sqlite(t) => t.query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))?,
        })
    }

    #[expect(clippy::future_not_send, reason = "SQLite stays on its thread")]
    pub(crate) async fn commit(self) -> Outcome<()> {
        match self {
            Self::Postgres(t) => t.commit().await?,
            Self::Mysql(t) => t.commit().await?,
            Self::Sqlite(t) => t.commit()?,
        }
        Ok(())
    }
}

impl Transaction for Begun<'_> {
    type Error = Box<dyn Error + Send + Sync>;

    fn database(&self) -> Database {
        match self {
            Self::Postgres(_) => Database::Postgres,
            Self::Mysql(_) => Database::Mysql,
            Self::Sqlite(_) => Database::Sqlite,
        }
    }

    #[expect(clippy::future_not_send, reason = "SQLite stays on its thread")]
    async fn run(&mut self, statement: &str, values: &[Value<'_>]) -> Outcome<u64> {
        match self {
            Self::Postgres(t) => {
                let values = values.iter().map(|value| match value {
                    Value::Int(number) => number as &(dyn ToSql + Sync),
                    Value::Text(text) => text,
                });
                Ok(t.execute(statement, &values.collect::<Vec<_>>()).await?)
            }
            Self::Mysql(t) => {
                let values = values.iter().map(|value| match value {
                    Value::Int(number) => mysql_async::Value::Int(*number),
                    Value::Text(text) => mysql_async::Value::Bytes(text.as_bytes().to_vec()),
                });
                let values = mysql_async::Params::Positional(values.collect());
                let mut result = t.exec_iter(statement, values).await?;
                let changed = result.affected_rows();
                let rows: Vec<mysql_async::Row> = result.collect().await?;
                Ok(changed.max(rows.len() as u64))
            }
            Self::Sqlite(t) => {
                let values = values.iter().map(|value| match *value {
                    Value::Int(number) => rusqlite::types::Value::Integer(number),
                    Value::Text(text) => rusqlite::types::Value::Text(text.to_owned()),
                });
                let mut statement = t.prepare(statement)?;
                let reads = statement.column_count() > 0;
                let mut rows = statement.query(rusqlite::params_from_iter(values))?;
                let mut read = 0;
                while rows.next()?.is_some() {
                    read += 1;
                }
                drop(rows);
                Ok(if reads { read } else { t.changes() })
            }
        }
    }
}

/// The argument of the example, or a file of SQLite.
pub(crate) fn url() -> String {
    let file = std::env::temp_dir().join(format!("leasehold-example-{}.db", std::process::id()));
    let argument = std::env::args().nth(1);
    argument.unwrap_or_else(|| format!("sqlite:{}", file.display()))
}

/// Does the same on some threads, each with a runtime of its own: SQLite blocks the thread it is used on.
pub(crate) fn on_threads<F>(threads: usize, work: impl Fn() -> F + Sync) -> Outcome<()>
where
    F: Future<Output = Outcome<()>>,
{
    let one = || -> Outcome<()> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build()?.block_on(work())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let mut done = threads.into_iter().map(|thread| thread.join());
        done.try_for_each(|done| done.map_err(|_| "a thread panicked")?)
    })
}
