//! The pieces in MariaDB: a row for each item, with a version; and the categories.

use leasehold::sql::{Database, Transaction, Value};
use mysql_async::prelude::Queryable;
use mysql_async::{IsolationLevel, Opts, OptsBuilder, Params, Pool, TxOpts};

use crate::answer::Outcome;
use crate::app::Failed;
use crate::categories::Category;
use crate::stock::Books;

const TABLES: [&str; 3] = [
    "CREATE TABLE IF NOT EXISTS stock (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, sold BIGINT NOT NULL, version BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS category (id BIGINT PRIMARY KEY, root BIGINT NOT NULL, parent BIGINT, name VARCHAR(80) NOT NULL)",
    "INSERT IGNORE INTO category VALUES (1, 1, NULL, 'shop'), (2, 1, 1, 'books'), (3, 1, 1, 'toys'), (4, 1, 2, 'novels')",
];

/// The tables of the shop.
#[derive(Debug, Clone)]
pub struct Rows(Pool);

/// A row of the stock as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// What is left and what was sold.
    pub books: Books,
    /// How often it was changed.
    pub version: i64,
}

/// A transaction of the shop's own. Leasehold's helpers work inside it.
#[derive(Debug)]
pub struct Begun<'a>(mysql_async::Transaction<'a>);

impl Rows {
    /// Connects, and makes the tables.
    ///
    /// # Errors
    /// Those of MariaDB.
    pub async fn open(url: &str) -> Result<Self, Failed> {
        // Rows that were found count, changed or not.
        let opts = OptsBuilder::from_opts(Opts::from_url(url)?).client_found_rows(true);
        let pool = Pool::new(opts);
        let mut connection = pool.get_conn().await?;
        for table in TABLES {
            connection.query_drop(table).await?;
        }
        drop(connection);
        Ok(Self(pool))
    }

    /// A connection; transactions begin on it.
    ///
    /// # Errors
    /// Those of MariaDB.
    pub async fn connection(&self) -> Outcome<mysql_async::Conn> {
        Ok(self.0.get_conn().await?)
    }

    /// Puts so many pieces there, none of them sold.
    ///
    /// # Errors
    /// Those of MariaDB.
    pub async fn fill(&self, item: u64, left: i64) -> Outcome<()> {
        let statement = "REPLACE INTO stock VALUES (?, ?, 0, 0)";
        let mut connection = self.connection().await?;
        Ok(connection.exec_drop(statement, (item, left)).await?)
    }

    /// The categories below a root; none if there is no such root.
    ///
    /// # Errors
    /// Those of MariaDB.
    pub async fn tree(&self, root: u64) -> Outcome<Option<Vec<Category>>> {
        let query = "SELECT id, parent, name FROM category WHERE root = ? ORDER BY id";
        let mut connection = self.connection().await?;
        let category = |(id, parent, name)| Category { id, parent, name };
        let rows: Vec<_> = connection.exec_map(query, (root,), category).await?;
        Ok(Some(rows).filter(|rows| !rows.is_empty()))
    }
}

/// Begins a transaction.
///
/// # Errors
/// Those of MariaDB.
pub async fn begin(connection: &mut mysql_async::Conn) -> Outcome<Begun<'_>> {
    // A row that was waited for is read as it is then.
    let mut opts = TxOpts::default();
    let _ = opts.with_isolation_level(IsolationLevel::ReadCommitted);
    Ok(Begun(connection.start_transaction(opts).await?))
}

/// Reads the row of an item, if there is one.
///
/// # Errors
/// Those of MariaDB.
pub async fn read(on: &mut impl Queryable, item: u64) -> Outcome<Option<Read>> {
    let query = "SELECT n, sold, version FROM stock WHERE id = ?";
    let row: Option<(i64, i64, i64)> = on.exec_first(query, (item,)).await?;
    let read = |(left, sold, version)| Read {
        books: Books { left, sold },
        version,
    };
    Ok(row.map(read))
}

impl Begun<'_> {
    /// Reads the row of an item, if there is one.
    ///
    /// # Errors
    /// Those of MariaDB.
    pub async fn read(&mut self, item: u64) -> Outcome<Option<Read>> {
        read(&mut self.0, item).await
    }

    /// Commits.
    ///
    /// # Errors
    /// Those of MariaDB.
    pub async fn commit(self) -> Outcome<()> {
        Ok(self.0.commit().await?)
    }
}

impl Transaction for Begun<'_> {
    type Error = mysql_async::Error;

    fn database(&self) -> Database {
        Database::Mysql
    }

    async fn run(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64, Self::Error> {
        let values = values.iter().map(|value| match value {
            Value::Int(number) => mysql_async::Value::Int(*number),
            Value::Text(text) => mysql_async::Value::Bytes(text.as_bytes().to_vec()),
        });
        let values = Params::Positional(values.collect());
        let mut result = self.0.exec_iter(statement, values).await?;
        let changed = result.affected_rows();
        let rows: Vec<mysql_async::Row> = result.collect().await?;
        Ok(changed.max(rows.len() as u64))
    }
}
