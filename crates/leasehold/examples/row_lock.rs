//! The row itself is the lock: a change of the stock waits for its row, in the transaction that changes it.
//!
//! `cargo run -p leasehold --features mysql,postgres,sqlite --example row_lock [URL]`

mod database;

use database::{Connection, Outcome, on_threads};
use leasehold::sql::{Row, Update, Value};

const ROUNDS: i64 = 25;
const THREADS: i64 = 4;

/// Four threads add to one number; answers with what it is in the end.
pub(crate) fn run(url: &str) -> Outcome<i64> {
    let mut stock = 0;
    on_threads(1, || async {
        Connection::open(url).await?.create_stock().await
    })?;
    on_threads(THREADS as usize, || add(url))?;
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().build()?.block_on(async {
        let mut connection = Connection::open(url).await?;
        stock = connection.begin().await?.stock().await?.0;
        Outcome::Ok(())
    })?;
    Ok(stock)
}

#[expect(clippy::future_not_send, reason = "SQLite stays on its thread")]
async fn add(url: &str) -> Outcome<()> {
    let mut connection = Connection::open(url).await?;
    let row = Row::new("stock", "id", 1)?;
    for _ in 0..ROUNDS {
        let mut transaction = connection.begin().await?;
        assert!(row.lock(&mut transaction).await?, "the row is there");
        let (n, version) = transaction.stock().await?;
        let set = [("n", Value::Int(n + 1))];
        let done = row
            .update_versioned(&mut transaction, &set, version)
            .await?;
        assert_eq!(done, Update::Done, "no other can have changed it");
        transaction.commit().await?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let stock = run(&database::url())?;
    println!("{THREADS} threads added {ROUNDS} each: {stock}");
    assert_eq!(stock, THREADS * ROUNDS);
    Ok(())
}
