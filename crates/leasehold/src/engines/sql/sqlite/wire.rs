//! The only file that names `rusqlite`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Batch, Connection as File, ErrorCode, ToSql, params_from_iter};
use tokio::task::spawn_blocking;

use super::super::quick::{Statement, Value};
use super::super::wire::{Link, Rows, Told, Trouble, What};
use crate::sync::Shared;

/// An open file.
///
/// A commit that neither waits for others nor for the disk takes some microseconds, less than a change of threads, so
/// it is done where it is asked for. Whatever waits is done on a thread that may: everything while another connection
/// writes, every commit if each reaches the disk, and the checkpoints.
pub(super) struct Connection {
    /// None while another thread has it.
    file: Option<File>,
    full: bool,
    /// How much was asked since the last checkpoint.
    asked: u32,
    path: PathBuf,
    inode: Option<Inode>,
    current: Arc<Shared<Option<Inode>>>,
}

/// The device and the number of a file.
pub(super) type Inode = (u64, u64);

fn inode(path: &Path) -> Option<Inode> {
    let found = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    return {
        use std::os::unix::fs::MetadataExt;
        Some((found.dev(), found.ino()))
    };
    // An open database cannot be removed or replaced there.
    #[cfg(not(unix))]
    return found.is_file().then_some((0, 0));
}

/// A checkpoint after so many packets: a few megabytes.
const CHECKPOINT: u32 = 500;

impl Connection {
    pub(super) async fn open(
        path: PathBuf,
        full: bool,
        current: Arc<Shared<Option<Inode>>>,
    ) -> Result<Self, Trouble> {
        let at = path.clone();
        let file = elsewhere(move || {
            let mut file = File::open(at)?;
            file.busy_handler(Some(wait))?;
            file.pragma_update(None, "journal_mode", "wal")?;
            file.pragma_update(None, "synchronous", if full { "full" } else { "normal" })?;
            file.pragma_update(None, "wal_autocheckpoint", 0)?;
            file.busy_timeout(Duration::ZERO)?;
            Ok(file)
        });
        let file = Some(file.await?.map_err(trouble)?);
        let inode = inode(&path);
        let link = Self {
            file,
            full,
            asked: 0,
            path,
            inode,
            current,
        };
        let before = link.current.lock().replace(inode.unwrap_or_default());
        match before {
            Some(before) if Some(before) != inode => Err(link.moved()),
            _ => Ok(link),
        }
    }

    /// Looks whether the path still names the file that is open: another process would open another file, and see
    /// none of our claims.
    fn in_place(&self) -> Result<(), Trouble> {
        if inode(&self.path) == self.inode {
            return Ok(());
        }
        let mut current = self.current.lock();
        if *current != self.inode {
            // That has been told; the next connection is to the new file.
            return Err(Trouble::new(What::Again, "the file is opened anew"));
        }
        *current = None;
        Err(self.moved())
    }

    fn moved(&self) -> Trouble {
        let what = format!(
            "the file {} was removed or replaced while it was in use: other processes see none of the locks that were \
             in it, so they are lost. Stop all users of a file before it is moved",
            self.path.display()
        );
        Trouble::new(What::Moved, what)
    }

    /// Does it here if nothing is in the way.
    fn at_once<T>(
        &mut self,
        work: impl FnOnce(&File) -> Result<T, rusqlite::Error>,
    ) -> Option<Result<T, Trouble>> {
        self.asked += 1;
        let file = self.file.as_ref()?;
        if self.full || self.asked > CHECKPOINT {
            return None;
        }
        match work(file) {
            Err(error) if is_busy(&error) && file.is_autocommit() => None,
            answer => Some(answer.map_err(trouble)),
        }
    }

    /// Does it on a thread that may wait.
    async fn patiently<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&File) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, Trouble> {
        let gone = || Trouble::new(What::Broken, "the file was left in the middle");
        let mut file = self.file.take().ok_or_else(gone)?;
        let checkpoint = self.asked > CHECKPOINT;
        let done = elsewhere(move || {
            let answer = file.busy_handler(Some(wait)).and_then(|()| work(&file));
            let answer = file.busy_timeout(Duration::ZERO).and(answer);
            if checkpoint && file.is_autocommit() {
                // As far as others let it; what is left the next one does.
                drop(file.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())));
            }
            (file, answer)
        });
        let (file, answer) = done.await?;
        if checkpoint && file.is_autocommit() {
            self.asked = 0;
        }
        self.file = Some(file);
        answer.map_err(trouble)
    }
}

async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Trouble> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| Trouble::new(What::Broken, format!("the thread of the file: {error}")))
}

#[async_trait]
impl Link for Connection {
    async fn run(&mut self, packet: &str) -> Result<Vec<Rows>, Trouble> {
        self.in_place()?;
        if let Some(answer) = self.at_once(|file| run(file, packet)) {
            return answer;
        }
        let packet = packet.to_owned();
        self.patiently(move |file| run(file, &packet)).await
    }

    async fn quick(&mut self, statement: &Statement, values: &[Value]) -> Result<Told, Trouble> {
        self.in_place()?;
        if let Some(answer) = self.at_once(|file| quick(file, &statement.text, values)) {
            return answer;
        }
        let (text, values) = (statement.text.clone(), values.to_vec());
        self.patiently(move |file| quick(file, &text, &values))
            .await
    }
}

/// Another connection writes. SQLite's own handler waits for up to 100 ms between two looks, which is long for a lock.
/// After a while the operation is looked at again: its caller may be gone.
#[expect(
    clippy::disallowed_methods,
    reason = "SQLite asks on a thread that may wait"
)]
fn wait(times: i32) -> bool {
    std::thread::sleep(Duration::from_micros(rand::random_range(100..1_000)));
    times < 100
}

fn quick(file: &File, text: &str, values: &[Value]) -> Result<Told, rusqlite::Error> {
    let mut statement = file.prepare_cached(text)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let told = match rows.next()? {
        Some(row) => Some(vec![Some(row.get::<_, i64>(0)?.to_string())]),
        None => None,
    };
    // It commits when it has come to its end.
    while rows.next()?.is_some() {}
    Ok(told)
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Number(number) => i64::try_from(*number).unwrap_or(i64::MAX).into(),
            Self::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

fn run(file: &File, packet: &str) -> Result<Vec<Rows>, rusqlite::Error> {
    let mut answers = Vec::new();
    if packet == "ROLLBACK" && file.is_autocommit() {
        return Ok(answers);
    }
    let mut batch = Batch::new(file, packet);
    while let Some(mut statement) = batch.next()? {
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut answer = Rows::new();
        while let Some(row) = rows.next()? {
            let cells = (0..columns).map(|at| row.get_ref(at).map(cell));
            answer.push(cells.collect::<Result<_, _>>()?);
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

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

fn trouble(error: rusqlite::Error) -> Trouble {
    let message = error.to_string();
    let what = match error.sqlite_error_code() {
        _ if is_busy(&error) => What::Again,
        Some(ErrorCode::SchemaChanged) => What::Again,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => What::Denied,
        Some(ErrorCode::NotADatabase) => What::Unsuitable,
        _ if message.contains("no such table") => What::Missing,
        _ => What::Other,
    };
    Trouble::new(what, message)
}
