//! The only file that names `rusqlite`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, ErrorCode};
use tokio::sync::{mpsc, oneshot};

use super::super::wire::{Link, Rows, Trouble, What};

/// A thread that owns a connection: SQLite blocks, and a runtime's threads must not.
pub(super) struct Thread(mpsc::UnboundedSender<Packet>);

type Packet = (String, oneshot::Sender<Result<Vec<Rows>, Trouble>>);

impl Thread {
    pub(super) fn start(path: PathBuf, full: bool) -> Result<Self, Trouble> {
        let (send, mut packets) = mpsc::unbounded_channel::<Packet>();
        let thread = std::thread::Builder::new().name("leasehold-sqlite".to_owned());
        let started = thread.spawn(move || {
            let mut connection = None;
            while let Some((packet, tell)) = packets.blocking_recv() {
                let answer = match &connection {
                    Some(connection) => run(connection, &packet),
                    None => open(&path, full).and_then(|opened| {
                        let opened = connection.insert(opened);
                        run(opened, &packet)
                    }),
                };
                drop(tell.send(answer));
            }
        });
        match started {
            Ok(_) => Ok(Self(send)),
            Err(error) => Err(Trouble::new(What::Other, format!("no thread: {error}"))),
        }
    }
}

#[async_trait]
impl Link for Thread {
    async fn run(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble> {
        let (tell, told) = oneshot::channel();
        drop(self.0.send((packet.to_owned(), tell)));
        let gone = |_| Trouble::new(What::Broken, "the thread of the file is gone");
        told.await.map_err(gone)?
    }
}

fn open(path: &Path, full: bool) -> Result<Connection, Trouble> {
    let mut connection = Connection::open(path).map_err(trouble)?;
    connection.busy_handler(Some(wait)).map_err(trouble)?;
    let synchronous = if full { "full" } else { "normal" };
    for (setting, value) in [("journal_mode", "wal"), ("synchronous", synchronous)] {
        let set = connection.pragma_update(None, setting, value);
        set.map_err(trouble)?;
    }
    Ok(connection)
}

/// Somebody else writes. SQLite's own handler waits for up to 100 ms between two looks, which is long for a lock.
#[expect(
    clippy::disallowed_methods,
    reason = "SQLite asks on its own thread, which is ours"
)]
fn wait(times: i32) -> bool {
    std::thread::sleep(Duration::from_micros(rand::random_range(100..1_000)));
    times < 20_000
}

fn run(connection: &Connection, packet: &str) -> Result<Vec<Rows>, Trouble> {
    let mut answers = Vec::new();
    let mut batch = Batch::new(connection, packet);
    while let Some(mut statement) = batch.next().map_err(trouble)? {
        let columns = statement.column_count();
        let mut rows = statement.query([]).map_err(trouble)?;
        let mut answer = Rows::new();
        while let Some(row) = rows.next().map_err(trouble)? {
            let cells = (0..columns).map(|at| row.get_ref(at).map(cell));
            answer.push(cells.collect::<Result<_, _>>().map_err(trouble)?);
        }
        answers.push(answer);
    }
    Ok(answers)
}

fn cell(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            Some(String::from_utf8_lossy(text).into_owned())
        }
    }
}

fn trouble(error: rusqlite::Error) -> Trouble {
    let message = error.to_string();
    let what = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::SchemaChanged) => {
            What::Again
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => What::Denied,
        Some(ErrorCode::NotADatabase) => What::Unsuitable,
        _ if message.contains("no such table") => What::Missing,
        _ => What::Other,
    };
    Trouble::new(what, message)
}
