//! Where the three databases differ in their words.
//!
//! Statements are text, and all that is ever written into them is numbers and hexadecimal digits (names are among the
//! latter): there is nothing to escape. A packet of statements is one round trip on every database, also behind a pooler.

use std::fmt::Write;

use super::rows::Lock;

/// One of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    Mysql,
    #[cfg(feature = "sqlite")]
    Sqlite,
}

use Dialect::*;

impl Dialect {
    /// The engine's word, and the URL's.
    pub(super) const fn word(self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Postgres => "postgres",
            #[cfg(feature = "mysql")]
            Mysql => "mysql",
            #[cfg(feature = "sqlite")]
            Sqlite => "sqlite",
        }
    }

    /// The tables as they are created.
    pub(super) const fn schema(self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Postgres => include_str!("schema/postgres.sql"),
            #[cfg(feature = "mysql")]
            Mysql => include_str!("schema/mysql.sql"),
            #[cfg(feature = "sqlite")]
            Sqlite => include_str!("schema/sqlite.sql"),
        }
    }

    /// Bytes as a literal.
    pub(super) fn bytes(self, bytes: &[u8]) -> String {
        let mut literal = String::with_capacity(bytes.len() * 2 + 12);
        literal.push_str(match self {
            #[cfg(feature = "postgres")]
            Postgres => "'\\x",
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            _ => "x'",
        });
        for byte in bytes {
            let _ = write!(literal, "{byte:02x}");
        }
        literal.push_str(match self {
            #[cfg(feature = "postgres")]
            Postgres => "'::bytea",
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            _ => "'",
        });
        literal
    }

    /// A number of 128 bits as a literal.
    pub(super) fn id(self, id: u128) -> String {
        self.bytes(&id.to_be_bytes())
    }

    /// The place of a bound value in a statement.
    pub(super) fn place(self, number: &str) -> String {
        let (sign, number) = match self {
            #[cfg(feature = "postgres")]
            Postgres => ("$", number),
            // It counts places itself.
            #[cfg(feature = "mysql")]
            Mysql => ("?", &number[..0]),
            #[cfg(feature = "sqlite")]
            Sqlite => ("?", number),
        };
        format!("{sign}{number}")
    }

    /// The function that answers with the larger of two numbers.
    pub(super) const fn larger(self) -> &'static str {
        match self {
            #[cfg(feature = "sqlite")]
            Sqlite => "max",
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            _ => "greatest",
        }
    }

    /// A column of bytes as hexadecimal text.
    pub(super) fn hex(self, column: &str) -> String {
        match self {
            #[cfg(feature = "postgres")]
            Postgres => format!("encode({column}, 'hex'::text)"),
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            _ => format!("hex({column})"),
        }
    }

    /// The database's time in microseconds, at the moment it is asked rather than when the transaction began.
    /// None for a database that lives in this process: its clock is ours.
    ///
    /// All types are written out: an operator that another role created must not fit better than the system's own.
    pub(super) const fn now(self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "postgres")]
            Postgres => {
                Some("(date_part('epoch'::text, clock_timestamp()) * 1000000::float8)::bigint")
            }
            #[cfg(feature = "mysql")]
            Mysql => Some("TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', SYSDATE(6))"),
            #[cfg(feature = "sqlite")]
            Sqlite => None,
        }
    }

    /// Begins a transaction that a vanished client cannot keep open for long.
    pub(super) const fn begin(self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Postgres => {
                "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 4000; \
                 SET LOCAL idle_in_transaction_session_timeout = 1000"
            }
            #[cfg(feature = "mysql")]
            Mysql => "START TRANSACTION",
            #[cfg(feature = "sqlite")]
            Sqlite => "BEGIN IMMEDIATE",
        }
    }

    /// The same on a connection for heartbeats: no row is waited for as long, because other lines come after it.
    pub(super) const fn begin_briefly(self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Postgres => {
                "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = 500; \
                 SET LOCAL idle_in_transaction_session_timeout = 1000"
            }
            #[cfg(feature = "mysql")]
            Mysql => "SET SESSION innodb_lock_wait_timeout = 1; START TRANSACTION",
            #[cfg(feature = "sqlite")]
            Sqlite => "BEGIN IMMEDIATE",
        }
    }

    /// Begins a look at several tables as they are at one moment.
    pub(super) const fn begin_look(self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            #[cfg(feature = "mysql")]
            Mysql => "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY",
            #[cfg(feature = "sqlite")]
            Sqlite => "BEGIN",
        }
    }

    /// Locks the rows of a `SELECT`. SQLite has locked the whole file by then.
    pub(super) const fn lock(self, lock: Lock) -> &'static str {
        match (self, lock) {
            (_, Lock::None) => "",
            #[cfg(feature = "sqlite")]
            (Sqlite, _) => "",
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            (_, Lock::Wait) => " FOR UPDATE",
            #[cfg(any(feature = "postgres", feature = "mysql"))]
            (_, Lock::NoWait) => " FOR UPDATE NOWAIT",
        }
    }
}
