//! The row itself: the change and its lock commit together, and no other lock is needed.

use axum::http::StatusCode;
use leasehold::sql::{Retries, Row, Update, Value};

use super::Work;
use crate::answer::{Answer, Outcome, Problem};
use crate::rows::{Begun, Read, begin, read};

/// How often an update is tried that another one was faster than.
const TRIES: u32 = 500;

fn row(item: u64) -> Outcome<Row<'static>> {
    Ok(Row::new("stock", "id", item.cast_signed())?)
}

fn no_such_item() -> Problem {
    Problem::refused(StatusCode::NOT_FOUND, "there is no such item")
}

async fn write(row: &Row<'_>, begun: &mut Begun<'_>, read: Read) -> Outcome<Update> {
    let (left, sold) = (read.books.left - 1, read.books.sold + 1);
    let set = [("n", Value::Int(left)), ("sold", Value::Int(sold))];
    Ok(row.update_versioned(begun, &set, read.version).await?)
}

/// `SELECT … FOR UPDATE`: waits for the row, changes it, commits.
pub(super) async fn row_lock(work: &Work<'_>) -> Outcome<Answer> {
    let row = row(work.item)?;
    let mut connection = work.app.rows.connection().await?;
    let mut begun = begin(&mut connection).await?;
    let _ = row.lock(&mut begun).await?;
    let read = begun.read(work.item).await?.ok_or_else(no_such_item)?;
    if read.books.left <= 0 {
        return Ok(Answer::SoldOut);
    }
    work.think().await?;
    // The row is locked: no other transaction can have changed it.
    let done = write(&row, &mut begun, read).await?;
    begun.commit().await?;
    Ok(match done {
        Update::Done => Answer::Sold,
        Update::Refused => Answer::Late,
    })
}

/// `UPDATE … WHERE version = …`: changes the row if it is still as it was read, and reads again if it is not.
pub(super) async fn version(work: &Work<'_>) -> Outcome<Answer> {
    let row = row(work.item)?;
    let mut connection = work.app.rows.connection().await?;
    let mut retries = Retries::at_most(TRIES);
    loop {
        let read = read(&mut connection, work.item).await?;
        let read = read.ok_or_else(no_such_item)?;
        if read.books.left <= 0 {
            return Ok(Answer::SoldOut);
        }
        work.think().await?;
        let mut begun = begin(&mut connection).await?;
        let done = write(&row, &mut begun, read).await?;
        begun.commit().await?;
        if done == Update::Done {
            return Ok(Answer::Sold);
        }
        if retries.again().await.is_err() {
            return Ok(Answer::Busy);
        }
    }
}
