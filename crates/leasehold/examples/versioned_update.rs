//! No transaction waits: a change is made if the row is still as it was read, and tried again if it is not.
//!
//! `cargo run -p leasehold --features mysql,postgres,sqlite --example versioned_update [URL]`

mod database;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use database::{Connection, Outcome, on_threads};
use leasehold::sql::{Retries, Row, Update, Value};

const ROUNDS: i64 = 25;
const THREADS: i64 = 4;

/// Four threads add to one number; answers with what it is in the end, and how often one was in another's way.
pub(crate) fn run(url: &str) -> Outcome<(i64, u32)> {
    let (conflicts, mut stock) = (AtomicU32::new(0), 0);
    on_threads(1, || async {
        Connection::open(url).await?.create_stock().await
    })?;
    on_threads(THREADS as usize, || add(url, &conflicts))?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        let mut connection = Connection::open(url).await?;
        stock = connection.begin().await?.stock().await?.0;
        Outcome::Ok(())
    })?;
    Ok((stock, conflicts.into_inner()))
}

#[expect(clippy::future_not_send, reason = "SQLite stays on its thread")]
async fn add(url: &str, conflicts: &AtomicU32) -> Outcome<()> {
    let mut connection = Connection::open(url).await?;
    for _ in 0..ROUNDS {
        let mut retries = Retries::at_most(500);
        while add_one(&mut connection).await? == Update::Refused {
            retries.again().await?;
        }
        let _ = conflicts.fetch_add(retries.conflicts(), Ordering::Relaxed);
    }
    Ok(())
}

/// Reads in one transaction and writes in another, as a page that is shown and then sent back.
#[expect(clippy::future_not_send, reason = "SQLite stays on its thread")]
async fn add_one(connection: &mut Connection) -> Outcome<Update> {
    let (n, version) = connection.begin().await?.stock().await?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut transaction = connection.begin().await?;
    let row = Row::new("stock", "id", 1)?;
    let set = [("n", Value::Int(n + 1))];
    let done = row
        .update_versioned(&mut transaction, &set, version)
        .await?;
    transaction.commit().await?;
    Ok(done)
}

fn main() -> Outcome<()> {
    let (stock, conflicts) = run(&database::url())?;
    println!(
        "{THREADS} threads added {ROUNDS} each: {stock}; {conflicts} conflicts were tried again"
    );
    assert_eq!(stock, THREADS * ROUNDS);
    Ok(())
}
