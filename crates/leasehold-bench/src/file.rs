//! The file engine in one process, beside a bare `flock`.

use std::fs::File;
use std::time::Duration;

use leasehold::Client;
use rustix::fs::{FlockOperation, flock};

use crate::Settings;
use crate::measure::{Outcome, Slice, Spread, duel};
use crate::memory::one_thread;
use crate::table::{Goal, Row};

/// One locker alone.
pub(crate) fn uncontended(settings: &Settings) -> Outcome<()> {
    let runtime = one_thread()?;
    let place = settings.place()?;
    let client = runtime.block_on(leasehold::connect(&place.url))?;
    let bare = File::create(place.path("bare.lock"))?;
    let ours = || Ok(runtime.block_on(runtime.spawn(lock_alone(client.clone())))??);
    let goal = Goal::AtMost(9.0);
    let duel = duel(settings.many(), ours, || flock_alone(&bare))?;
    let name = format!("{} uncontended beside flock", place.kind());
    Row::ratio(&name, "µs", &duel, goal).print();
    Ok(())
}

async fn lock_alone(client: Client) -> leasehold::Result<f64> {
    let mutex = client.mutex("alone");
    let mut slice = Slice::start();
    while slice.another() {
        let _ = mutex.lock().await?.release().await?;
    }
    Ok(slice.nanos_each() / 1e3)
}

fn flock_alone(bare: &File) -> Outcome<f64> {
    let mut slice = Slice::start();
    while slice.another() {
        flock(bare, FlockOperation::LockExclusive)?;
        flock(bare, FlockOperation::Unlock)?;
    }
    Ok(slice.nanos_each() / 1e3)
}

/// The same process again while its grant lingers.
pub(crate) fn linger(settings: &Settings) -> Outcome<()> {
    let runtime = one_thread()?;
    let place = settings.place()?;
    let client = runtime.block_on(leasehold::connect(&place.url))?;
    let mut times = Vec::new();
    for _ in 0..settings.many() {
        times.push(runtime.block_on(runtime.spawn(lock_lingering(client.clone())))??);
    }
    let name = format!("{} again under linger", place.kind());
    Row::alone(&name, "µs", Spread::of(times), Goal::AtMost(2.0)).print();
    Ok(())
}

async fn lock_lingering(client: Client) -> leasehold::Result<f64> {
    let mutex = client.mutex("again").linger(Duration::from_secs(60));
    let _ = mutex.lock().await?.release().await?;
    let mut slice = Slice::start();
    while slice.another() {
        let _ = mutex.lock().await?.release().await?;
    }
    Ok(slice.nanos_each() / 1e3)
}
