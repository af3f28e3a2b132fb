//! Three workers who begin together, go step by step, and are waited for.
//!
//! `cargo run -p leasehold --example latch_and_barrier`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const WORKERS: u32 = 3;
const STEPS: u32 = 4;

/// One worker: no step begins before all have ended the one before.
async fn work(url: &str, ended: Arc<AtomicU32>) -> leasehold::Result<()> {
    let client = leasehold::connect(url).await?;
    let step = client.barrier("steps", WORKERS);
    for number in 1..=STEPS {
        let _ = ended.fetch_add(1, Ordering::Relaxed);
        let passed = step.arrive().await?;
        assert!(ended.load(Ordering::Relaxed) >= number * WORKERS);
        if passed.last {
            println!("step {number}: all have arrived");
        }
    }
    let _ = client.latch("done", WORKERS).count_down().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> leasehold::Result<()> {
    // On three machines it would be redis://… instead.
    let url = "memory:workers";
    let client = leasehold::connect(url).await?;
    let done = client.latch("done", WORKERS);
    let ended = Arc::<AtomicU32>::default();
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        let ended = ended.clone();
        let _ = workers.spawn(async move { work(url, ended).await });
    }
    done.wait().await?;
    println!("all {WORKERS} workers are done");
    workers.join_all().await.into_iter().collect()
}
