//! A category tree that two instances show and one of them loads.
//!
//! `cargo run -p leasehold --features cached --example cached`

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Client;

/// Stands for the database: counts how often it is read.
#[derive(Default)]
struct Database {
    reads: AtomicUsize,
}

impl Database {
    async fn categories(&self) -> leasehold::Result<Option<Vec<String>>> {
        let _ = self.reads.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await; // it takes its time
        Ok(Some(vec!["books".to_owned(), "toys".to_owned()]))
    }
}

/// One request at one instance.
async fn show(instance: &Client, database: &Database) -> leasehold::Result<usize> {
    let tree = instance.cached("categories").ttl(Duration::from_secs(600));
    let tree = tree.get_or_load(async || database.categories().await);
    Ok(tree.await?.map_or(0, |tree| tree.len()))
}

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let database = Database::default();
    // Two instances; on two machines it would be redis://… instead.
    let one = leasehold::connect("memory:shop").await?;
    let two = leasehold::connect("memory:shop").await?;
    for _ in 0..15 {
        let (ours, theirs) = tokio::join!(show(&one, &database), show(&two, &database));
        assert_eq!((ours?, theirs?), (2, 2));
    }
    let reads = database.reads.load(Ordering::Relaxed);
    println!("30 requests at two instances: {reads} read of the database");
    assert_eq!(reads, 1);
    Ok(())
}
