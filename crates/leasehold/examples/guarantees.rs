//! Prints the table of guarantees of every engine that needs no server.

use leasehold::engine::Guarantees;

#[tokio::main(flavor = "current_thread")]
async fn main() -> leasehold::Result<()> {
    println!("{}", Guarantees::table_header());
    for url in ["memory:", "file:"] {
        let client = leasehold::connect(url).await?;
        println!("{}", client.guarantees().table_row());
    }
    Ok(())
}
