//! With the server's address in `mod.rs`, the only file that names `mysql_async`.

use std::collections::HashMap;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, Params, Row, Statement as Prepared, Value};

use super::super::quick::{Statement, Value as Bound};
use super::super::wire::{Link, Rows, Told, Trouble, What, cause};

/// The longest answer that is taken: a look at every line has one row for each claim. One packet has 16 MiB at most.
const ANSWER: usize = 256 << 20;

/// What a row costs besides its text.
const ROW: usize = 64;

/// A connection.
pub(super) struct Connection {
    conn: Conn,
    /// What the server has prepared on it, by name.
    prepared: HashMap<String, Prepared>,
}

impl Connection {
    pub(super) async fn open(opts: &Opts) -> Result<Self, Trouble> {
        let conn = Conn::new(opts.clone()).await;
        let conn = conn.map_err(|error| trouble(&error))?;
        let prepared = HashMap::new();
        Ok(Self { conn, prepared })
    }

    async fn prepared(&mut self, statement: &Statement) -> Result<Prepared, Error> {
        if let Some(prepared) = self.prepared.get(&statement.name) {
            return Ok(prepared.clone());
        }
        let prepared = self.conn.prep(statement.text.as_str()).await?;
        let _ = self
            .prepared
            .insert(statement.name.clone(), prepared.clone());
        Ok(prepared)
    }
}

#[async_trait]
impl Link for Connection {
    async fn run(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble> {
        let answers = async {
            let mut results = self.conn.query_iter(packet).await?;
            let (mut answers, mut taken) = (Vec::new(), 0);
            while !results.is_empty() || answers.is_empty() {
                let mut rows = Rows::new();
                while let Some(row) = results.next().await? {
                    let row = cells(row);
                    taken += row.iter().flatten().map(String::len).sum::<usize>() + ROW;
                    if taken > ANSWER {
                        let what = "the server sends more than 256 MiB in an answer";
                        return Err(std::io::Error::other(what).into());
                    }
                    rows.push(row);
                }
                answers.push(rows);
            }
            // An error of a later statement looks like the end of the results until the next one is asked for.
            results.drop_result().await?;
            Ok(answers)
        };
        answers.await.map_err(|error: Error| trouble(&error))
    }

    /// The server prepares it the first time; the answer is in its last word, not in rows.
    async fn quick(&mut self, statement: &Statement, values: &[Bound]) -> Result<Told, Trouble> {
        let bound = statement.places.iter().map(|place| match &values[*place] {
            Bound::Number(number) => Value::UInt(*number),
            Bound::Bytes(bytes) => Value::Bytes(bytes.clone()),
        });
        let values = Params::Positional(bound.collect());
        let done = async {
            let prepared = self.prepared(statement).await?;
            self.conn.exec_drop(prepared, values).await
        };
        done.await.map_err(|error| trouble(&error))?;
        let told = match statement.tells {
            true => self.conn.last_insert_id(),
            false => Some(self.conn.affected_rows()),
        };
        Ok(told.map(|number| vec![Some(number.to_string())]))
    }
}

fn cells(row: Row) -> Vec<Option<String>> {
    row.unwrap().into_iter().map(cell).collect()
}

fn cell(value: Value) -> Option<String> {
    match value {
        Value::NULL => None,
        Value::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::UInt(number) => Some(number.to_string()),
        other => Some(other.as_sql(true)),
    }
}

fn trouble(error: &Error) -> Trouble {
    let Error::Server(told) = error else {
        return Trouble::new(What::Broken, cause(error));
    };
    let what = match told.code {
        // Deadlock, lock wait, changed since it was read, interrupted.
        1213 | 1205 | 1020 | 1317 | 1969 | 3024 => What::Again,
        1146 => What::Missing,
        1290 | 1836 => What::Unsuitable,
        1049 => What::Config,
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 => What::Denied,
        // Shut down, killed, cut off for being idle.
        1053 | 1152 | 1184 | 1927 | 4031 => What::Broken,
        _ => What::Other,
    };
    Trouble::new(what, told.message.clone())
}
