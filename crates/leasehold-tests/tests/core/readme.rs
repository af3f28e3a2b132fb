//! The code that the README shows, compiled and run.

use std::sync::Mutex;
use std::time::Duration;

use leasehold::{Fence, FenceGate};

use super::documentation::read;

#[derive(Debug, PartialEq, Eq)]
enum Sale {
    Done,
    Busy,
}

/// Stands for a database row that refuses old fences.
#[derive(Default)]
struct Stock {
    gate: FenceGate,
    left: Mutex<u32>,
}

impl Stock {
    async fn read(&self, fence: Fence) -> u32 {
        self.gate.admit(fence).expect("no later holder was here");
        *self.left.lock().expect("no panic")
    }

    async fn write(&self, fence: Fence, left: u32) {
        self.gate.admit(fence).expect("no later holder was here");
        *self.left.lock().expect("no panic") = left;
    }
}

async fn sell(client: &leasehold::Client, stock: &Stock) -> leasehold::Result<Sale> {
    let mutex = client.mutex("stock:42");
    let Some(guard) = mutex.lock_within(Duration::from_secs(2)).await? else {
        return Ok(Sale::Busy); // an answer, not an error
    };
    let left = stock.read(guard.fence()).await; // the stock refuses a smaller fence
    stock.write(guard.fence(), left - 1).await; // than it has seen
    let _ = guard.release().await?; // says whether the lock was held until now
    Ok(Sale::Done)
}

#[tokio::test(start_paused = true)]
async fn the_code_of_the_readme_sells_and_is_busy() {
    let client = leasehold::connect("memory:").await.expect("memory");
    let stock = Stock::default();
    *stock.left.lock().expect("no panic") = 2;
    let sale = sell(&client, &stock).await.expect("a sale");
    assert_eq!(sale, Sale::Done);
    assert_eq!(*stock.left.lock().expect("no panic"), 1);
    let guard = client.mutex("stock:42").lock().await.expect("a lock");
    let sale = sell(&client, &stock).await.expect("an answer");
    assert_eq!(sale, Sale::Busy);
    drop(guard);
}

#[test]
fn the_readme_shows_this_code() {
    let readme = read("README.md");
    let (_, rest) = readme.split_once("```rust\n").expect("a block of Rust");
    let (code, _) = rest.split_once("```").expect("the end of the block");
    assert!(
        include_str!("readme.rs").contains(code),
        "README.md shows Rust that tests/core/readme.rs does not compile:\n{code}"
    );
}
