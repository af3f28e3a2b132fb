//! Sixteen stripes beside one lock: lockers on different keys, which need not wait for each other.

use std::time::Duration;

use leasehold::Mutex;
use leasehold_testkit::servers::redis::Redis;
use tokio::task::JoinSet;

use crate::Settings;
use crate::measure::{Outcome, Watch, duel};
use crate::memory::two_workers;
use crate::table::{Goal, Row};

const LOCKERS: usize = 32;
const STRIPES: u32 = 16;

/// About a round trip between two machines.
const HOLD: Duration = Duration::from_millis(1);

/// How long one side is measured.
const TIME: Duration = Duration::from_millis(500);

/// One process, one client.
pub(crate) fn beside_one(settings: &Settings) -> Outcome<()> {
    let server = Redis::start();
    let runtime = two_workers()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let stripes = client.striped("carts", STRIPES);
    let striped = |key: usize| stripes.for_key(format!("user:{key}"));
    let one = |_| client.mutex("cart");
    let ours = || runtime.block_on(turns((0..LOCKERS).map(striped).collect()));
    let peer = || runtime.block_on(turns((0..LOCKERS).map(one).collect()));
    let name = "redis striped(16) beside one lock, 32 keys";
    let duel = duel(settings.repeats, ours, peer)?;
    Row::ratio(name, "turns/s", &duel, Goal::AtLeast(8.0)).print();
    Ok(())
}

/// How many turns all lockers together have in a second, each with its lock.
async fn turns(locks: Vec<Mutex>) -> Outcome<f64> {
    let start = Watch::start();
    let mut tasks = JoinSet::<leasehold::Result<u32>>::new();
    for lock in locks {
        let _ = tasks.spawn(async move {
            let mut turns = 0_u32;
            while start.elapsed() < TIME {
                let guard = lock.lock().await?;
                tokio::time::sleep(HOLD).await;
                let _ = guard.release().await?;
                turns += 1;
            }
            Ok(turns)
        });
    }
    let mut all = 0;
    while let Some(done) = tasks.join_next().await {
        all += done??;
    }
    Ok(f64::from(all) / start.elapsed().as_secs_f64())
}
