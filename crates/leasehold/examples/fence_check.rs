//! A lock of any engine outside, and a row that refuses a holder that has lost it.
//!
//! `cargo run -p leasehold --features mysql,postgres,sqlite --example fence_check [URL]`

mod database;

use database::{Connection, Outcome, on_threads};
use leasehold::Fence;
use leasehold::sql::{Row, Update, Value};

/// Two holders in a row; the first comes back late. Answers with how its late write went.
pub(crate) fn run(url: &str) -> Outcome<Update> {
    let late = std::sync::Mutex::new(Update::Done);
    on_threads(1, || async {
        let mut connection = Connection::open(url).await?;
        connection.create_stock().await?;
        // The engine may be another one altogether.
        let client = leasehold::connect("memory:fence-check").await?;
        let first = client.mutex("stock:1").lock().await?;
        let old = first.fence();
        assert_eq!(sell(&mut connection, old).await?, Update::Done);
        let _ = first.release().await?;
        let second = client.mutex("stock:1").lock().await?;
        assert_eq!(sell(&mut connection, second.fence()).await?, Update::Done);
        let refused = sell(&mut connection, old).await?;
        let _ = second.release().await?;
        if let Ok(mut late) = late.lock() {
            *late = refused;
        }
        Ok(())
    })?;
    late.into_inner().map_err(|_| "a thread panicked".into())
}

/// Shows the fence before the first read, and writes with it.
#[expect(clippy::future_not_send, reason = "SQLite stays on its thread")]
async fn sell(connection: &mut Connection, fence: Fence) -> Outcome<Update> {
    let row = Row::new("stock", "id", 1)?;
    let mut transaction = connection.begin().await?;
    if row.update_fenced(&mut transaction, &[], fence).await? == Update::Refused {
        return Ok(Update::Refused);
    }
    let (n, _) = transaction.stock().await?;
    let set = [("n", Value::Int(n - 1))];
    let done = row.update_fenced(&mut transaction, &set, fence).await?;
    transaction.commit().await?;
    Ok(done)
}

fn main() -> Outcome<()> {
    let late = run(&database::url())?;
    println!("the late write of the first holder: {late:?}");
    assert_eq!(late, Update::Refused);
    Ok(())
}
