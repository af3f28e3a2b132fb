//! The effect in the same transaction: the only way in which a lock and a change cannot come apart.
//!
//! For effects that live in one database, three helpers work inside **the caller's own transaction**, over whatever
//! client the caller uses. Implement [`Transaction`] for it in a few lines; `examples/database/mod.rs` does so for three
//! clients, and the examples `row_lock`, `versioned_update` and `fence_check` run on all three databases.
//!
//! | you want | take |
//! |---|---|
//! | wait for the row, change it, commit | [`Row::lock`] |
//! | not wait: change it unless another transaction did meanwhile | [`Row::update_versioned`] and [`Retries`] |
//! | a lock of any engine outside, and a row that refuses a holder that lost it | [`Row::update_fenced`] |
//!
//! The first two need no other lock. Their level is [`L3`](crate::engine::Level::L3).

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result as Answer, Step};
use crate::fence::Fence;

/// Which words a database understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Database {
    /// PostgreSQL.
    Postgres,
    /// MariaDB, MySQL.
    Mysql,
    /// SQLite. Begin with `BEGIN IMMEDIATE`: that is its lock, and there is no finer one.
    Sqlite,
}

/// A value that goes beside a statement, never into it. There are these two for good: a [`Transaction`] binds each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// A whole number.
    Int(i64),
    /// Text.
    Text(&'a str),
}

/// The caller's own open transaction.
#[expect(
    async_fn_in_trait,
    reason = "implemented by callers for their own types"
)]
pub trait Transaction {
    /// The error of the client crate.
    type Error;

    /// Which words it understands.
    fn database(&self) -> Database;

    /// Runs a statement with its values in order; answers with how many rows it read or changed.
    async fn run(&mut self, statement: &str, values: &[Value<'_>]) -> Result<u64, Self::Error>;
}

/// One row of one of the caller's tables. The names are the program's own and go into statements as they are: they
/// are refused unless they are plain.
///
/// ```
/// use leasehold::sql::Row;
/// let row = Row::new("account", "id", 42)?;
/// assert!(Row::new("account; DROP TABLE x", "id", 42).is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Row<'a> {
    table: &'a str,
    column: &'a str,
    key: i64,
}

/// How an update that was conditional went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use]
pub enum Update {
    /// The row was changed.
    Done,
    /// The row is not there, or is not as it has to be: another transaction changed it, or showed a later fence.
    Refused,
}

impl<'a> Row<'a> {
    /// The row of a table whose column has this value.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a name with more in it than letters, digits, underscores and dots.
    pub fn new(table: &'a str, column: &'a str, key: i64) -> Answer<Self> {
        plain(table)?;
        plain(column)?;
        Ok(Self { table, column, key })
    }

    /// Waits for the row and locks it until the transaction ends; says whether it is there.
    ///
    /// # Errors
    /// Those of the client crate.
    pub async fn lock<T: Transaction>(&self, transaction: &mut T) -> Result<bool, T::Error> {
        let (table, column) = (self.table, self.column);
        let (place, lock) = match transaction.database() {
            Database::Postgres => ("$1", " FOR UPDATE"),
            Database::Mysql => ("?", " FOR UPDATE"),
            Database::Sqlite => ("?", ""),
        };
        let statement = format!("SELECT {column} FROM {table} WHERE {column} = {place}{lock}");
        let found = transaction.run(&statement, &[Value::Int(self.key)]).await?;
        Ok(found > 0)
    }

    /// Changes the row if its column `version` is still this, and raises that.
    ///
    /// `set` are columns with their new values.
    ///
    /// # Errors
    /// Those of the client crate.
    ///
    /// # Panics
    /// If a column's name is not plain.
    pub async fn update_versioned<T: Transaction>(
        &self,
        transaction: &mut T,
        set: &[(&str, Value<'_>)],
        version: i64,
    ) -> Result<Update, T::Error> {
        let (also, unless) = ("version = version + 1", "version =");
        self.update(transaction, set, also, &[], unless, version)
            .await
    }

    /// Changes the row unless its column `fence` has seen a later one, and writes the fence there. Do it **before
    /// the first read** of the critical section too, with nothing to set: a fence protects from when it was seen.
    ///
    /// # Errors
    /// Those of the client crate.
    ///
    /// # Panics
    /// If a column's name is not plain.
    pub async fn update_fenced<T: Transaction>(
        &self,
        transaction: &mut T,
        set: &[(&str, Value<'_>)],
        fence: Fence,
    ) -> Result<Update, T::Error> {
        let fence = i64::try_from(fence.get()).unwrap_or(i64::MAX);
        let shown = [("fence", Value::Int(fence))];
        self.update(transaction, set, "", &shown, "fence <=", fence)
            .await
    }

    async fn update<T: Transaction>(
        &self,
        transaction: &mut T,
        set: &[(&str, Value<'_>)],
        also: &str,
        shown: &[(&str, Value<'_>)],
        condition: &str,
        bound: i64,
    ) -> Result<Update, T::Error> {
        let database = transaction.database();
        let place = |at: usize| match database {
            Database::Postgres => format!("${at}"),
            Database::Mysql | Database::Sqlite => "?".to_owned(),
        };
        let (mut values, mut assigned) = (Vec::new(), Vec::new());
        for (column, value) in set.iter().chain(shown) {
            assert!(
                plain(column).is_ok(),
                "{column:?} is no plain name of a column"
            );
            values.push(*value);
            assigned.push(format!("{column} = {}", place(values.len())));
        }
        assigned.extend((!also.is_empty()).then(|| also.to_owned()));
        values.extend([Value::Int(self.key), Value::Int(bound)]);
        let statement = format!(
            "UPDATE {} SET {} WHERE {} = {} AND {condition} {}",
            self.table,
            assigned.join(", "),
            self.column,
            place(values.len() - 1),
            place(values.len()),
        );
        match transaction.run(&statement, &values).await? {
            0 => Ok(Update::Refused),
            _ => Ok(Update::Done),
        }
    }
}

/// Notes in the caller's own transaction that something is done: whether this is the first time. The effect in the same
/// transaction then happens **exactly once** per key: both are there after the commit, or neither. No lock is needed; a second
/// transaction with the same key waits for the first.
///
/// The table is the caller's, and its column has a unique index and room for every key: `CREATE TABLE drawn (id VARCHAR(255)
/// PRIMARY KEY)`. MySQL cuts a longer key off, and compares as the column's collation does: give it a binary one.
///
/// # Errors
/// Those of the client crate.
///
/// # Panics
/// If a name is not plain.
///
/// ```
/// # use leasehold::sql::{Transaction, mark};
/// async fn draw<T: Transaction>(transaction: &mut T, user: &str) -> Result<bool, T::Error> {
///     if !mark(transaction, "drawn", "id", user).await? {
///         return Ok(false); // drawn before
///     }
///     transaction.run("UPDATE packet SET left_over = left_over - 1", &[]).await?;
///     Ok(true) // once the caller commits
/// }
/// ```
pub async fn mark<T: Transaction>(
    transaction: &mut T,
    table: &str,
    column: &str,
    key: &str,
) -> Result<bool, T::Error> {
    for name in [table, column] {
        assert!(plain(name).is_ok(), "{name:?} is no plain name");
    }
    let statement = match transaction.database() {
        Database::Postgres => {
            format!("INSERT INTO {table} ({column}) VALUES ($1) ON CONFLICT ({column}) DO NOTHING")
        }
        // Not ON DUPLICATE KEY: clients that count found rows would answer 1 for a key that was there.
        Database::Mysql => format!("INSERT IGNORE INTO {table} ({column}) VALUES (?)"),
        Database::Sqlite => {
            format!("INSERT INTO {table} ({column}) VALUES (?) ON CONFLICT ({column}) DO NOTHING")
        }
    };
    let changed = transaction.run(&statement, &[Value::Text(key)]).await?;
    Ok(changed == 1)
}

/// Another transaction was faster at every try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflicts {
    /// How many tries there were.
    pub tries: u32,
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "another transaction changed the row before each of {} tries: nothing was written; try again later",
            self.tries
        )
    }
}

impl std::error::Error for Conflicts {}

/// Counts the tries of an update that another transaction may be faster with, and pauses between them, a little
/// longer each time. Each try reads again, in a transaction of its own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold::sql::Conflicts> {
/// use leasehold::sql::{Retries, Update};
///
/// let mut retries = Retries::at_most(5);
/// # let mut answers = [Update::Refused, Update::Refused, Update::Done].into_iter();
/// # let mut read_compute_update = || answers.next().unwrap();
/// while read_compute_update() == Update::Refused {
///     retries.again().await?;
/// }
/// assert_eq!(retries.conflicts(), 2);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Retries {
    most: u32,
    conflicts: u32,
}

impl Retries {
    /// So many tries, and no more.
    pub const fn at_most(tries: u32) -> Self {
        Self {
            most: tries,
            conflicts: 0,
        }
    }

    /// How often another transaction was faster.
    pub const fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Another transaction was faster: waits a moment before the next try.
    ///
    /// # Errors
    /// [`Conflicts`] if that was the last.
    pub async fn again(&mut self) -> Result<(), Conflicts> {
        self.conflicts += 1;
        if self.conflicts >= self.most {
            let tries = self.conflicts;
            return Err(Conflicts { tries });
        }
        let longest = 1_000u64 << self.conflicts.min(7);
        let pause = Duration::from_micros(rand::random_range(0..longest));
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

fn plain(name: &str) -> Answer<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    if !name.is_empty() && name.chars().all(good) {
        return Ok(());
    }
    let what = format!("{name:?} is not a plain name of a table or column");
    Err(Error::new(ErrorKind::Invalid, Step::Name, what))
}

/// The statements that create Leasehold's own tables, for programs with migrations of their own: of `postgres`, `mysql`
/// or `sqlite`, as far as this build knows them.
///
/// # Errors
/// [`ErrorKind::Config`] for another database, and for a prefix that would have to be quoted.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// let schema = leasehold::sql::schema("sqlite", "locks_")?;
/// assert!(schema.contains("CREATE TABLE IF NOT EXISTS locks_line"));
/// # }
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn schema(database: &str, prefix: &str) -> Answer<String> {
    crate::engines::sql::schema(database, prefix)
}

/// The prefix of Leasehold's tables unless a URL says otherwise.
pub const PREFIX: &str = crate::engines::sql::PREFIX;
