//! Broken locks in databases.

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error as MySqlError, Opts};

use super::{Desk, FOR_EVER, Held, Lock};
use crate::Outcome;

/// Which lock a word means, if it is one of these.
pub(super) async fn open(word: &str, url: &str) -> Outcome<Option<Box<dyn Lock>>> {
    let row = match word {
        "lock-row" => Row::Bare,
        "unlock-by-anyone" => Row::NoOwner,
        "delete-and-insert" => Row::DeleteAndInsert,
        "advisory-pooler" => return Ok(Some(Box::new(Advisory::connect(url).await?))),
        _ => return Ok(None),
    };
    let mut connection = Conn::new(Opts::from_url(url)?).await?;
    let table = format!("lab_{}", word.replace('-', "_"));
    let columns = "name VARCHAR(64) PRIMARY KEY, until DATETIME(3)";
    let create = format!("CREATE TABLE IF NOT EXISTS {table} ({columns}) ENGINE=InnoDB");
    connection.query_drop(create).await?;
    Ok(Some(Box::new(Table {
        connection,
        table,
        row,
        name: String::new(),
    })))
}

/// The columns of a lock's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Row {
    /// A name.
    Bare,
    /// A name and an end, and no owner.
    NoOwner,
    /// The same; an old row is deleted before the new one is written, in one transaction.
    DeleteAndInsert,
}

struct Table {
    connection: Conn,
    table: String,
    row: Row,
    name: String,
}

impl Table {
    /// Whether the row could be written.
    async fn insert(&mut self, desk: &Desk) -> Outcome<bool> {
        let end = match self.row {
            Row::Bare => "NULL".to_owned(),
            _ => format!("NOW(3) + INTERVAL {} MICROSECOND", desk.lease.as_micros()),
        };
        let insert = format!("INSERT INTO {} VALUES ('{}', {end})", self.table, self.name);
        match self.connection.query_drop(insert).await {
            Ok(()) => Ok(true),
            // There is a row; or the database chose this transaction to end a deadlock.
            Err(MySqlError::Server(error)) if [1062, 1213].contains(&error.code) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete_old(&mut self) -> Outcome<()> {
        let (table, name) = (&self.table, &self.name);
        let delete = format!("DELETE FROM {table} WHERE name = '{name}' AND until < NOW(3)");
        Ok(self.connection.query_drop(delete).await?)
    }
}

#[async_trait]
impl Lock for Table {
    async fn try_lock(&mut self, name: &str, desk: &mut Desk) -> Outcome<Option<Held>> {
        self.name = name.to_owned();
        let got = match self.row {
            Row::Bare => self.insert(desk).await?,
            Row::NoOwner => {
                self.delete_old().await?;
                self.insert(desk).await?
            }
            Row::DeleteAndInsert => {
                self.connection.query_drop("BEGIN").await?;
                self.delete_old().await?;
                desk.halfway().await;
                let got = self.insert(desk).await?;
                let end = if got { "COMMIT" } else { "ROLLBACK" };
                self.connection.query_drop(end).await?;
                got
            }
        };
        let held = match self.row {
            Row::Bare => FOR_EVER,
            _ => desk.careful(),
        };
        Ok(got.then_some(held))
    }

    async fn unlock(&mut self, _desk: &mut Desk) -> Outcome<bool> {
        let delete = format!("DELETE FROM {} WHERE name = '{}'", self.table, self.name);
        self.connection.query_drop(delete).await?;
        Ok(false)
    }
}

/// PostgreSQL's advisory lock of a session.
struct Advisory(tokio_postgres::Client);

impl Advisory {
    async fn connect(url: &str) -> Outcome<Self> {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
        drop(tokio::spawn(connection));
        Ok(Self(client))
    }

    async fn says_yes(&self, question: &str) -> Outcome<bool> {
        let rows = self.0.simple_query(question).await?;
        Ok(rows.iter().any(|row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0) == Some("t"),
            _ => false,
        }))
    }
}

#[async_trait]
impl Lock for Advisory {
    async fn try_lock(&mut self, name: &str, _desk: &mut Desk) -> Outcome<Option<Held>> {
        let question = format!("SELECT pg_try_advisory_lock(hashtext('{name}'))");
        Ok(self.says_yes(&question).await?.then_some(FOR_EVER))
    }

    async fn unlock(&mut self, _desk: &mut Desk) -> Outcome<bool> {
        self.says_yes("SELECT pg_advisory_unlock(hashtext('stock:42'))")
            .await
    }
}
