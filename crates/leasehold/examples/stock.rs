//! A stock counter behind two instances: no instance sells what is not there, and a late writer is refused.
//!
//! `cargo run -p leasehold --example stock`

use std::sync::{Arc, Mutex};

use leasehold::{Client, Fence, FenceGate};

/// Stands for a database row that only the lock protects, and that refuses old fences.
#[derive(Default)]
struct Stock {
    gate: FenceGate,
    left: Mutex<u32>,
}

impl Stock {
    fn read(&self, fence: Fence) -> u32 {
        self.gate.admit(fence).expect("no later holder was here");
        *self.left.lock().expect("no panic")
    }

    fn write(&self, fence: Fence, left: u32) {
        self.gate.admit(fence).expect("no later holder was here");
        *self.left.lock().expect("no panic") = left;
    }
}

/// One request at one instance: sells one piece if there is one.
async fn sell(instance: &Client, stock: &Stock) -> leasehold::Result<bool> {
    let guard = instance.mutex("stock:42").lock().await?;
    let left = stock.read(guard.fence());
    tokio::task::yield_now().await; // the database takes its time
    if left > 0 {
        stock.write(guard.fence(), left - 1);
    }
    let _ = guard.release().await?;
    Ok(left > 0)
}

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    let stock = Arc::new(Stock::default());
    *stock.left.lock().expect("no panic") = 100;
    let instances = [
        leasehold::connect("memory:shop").await?,
        leasehold::connect("memory:shop").await?,
    ];
    let mut requests = tokio::task::JoinSet::new();
    for request in 0..150 {
        let (instance, stock) = (instances[request % 2].clone(), stock.clone());
        let _ = requests.spawn(async move { sell(&instance, &stock).await });
    }
    let mut sold = 0;
    for answer in requests.join_all().await {
        sold += u32::from(answer?);
    }
    println!(
        "150 requests, 100 pieces, {sold} sold, {} left",
        stock.left.lock().expect("no panic")
    );
    assert_eq!(sold, 100);
    Ok(())
}
