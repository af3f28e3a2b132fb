//! The end of a run: every worker ends, every name is free, nothing is left.

use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, Guard};
use tokio::time::{Instant, sleep, timeout};

use super::locks::{Kind, NAMES, take_whole};
use super::run::Run;
use super::workers::Worker;
use crate::Outcome;
use crate::history::What;

/// How long a worker may take for what it is doing, with nothing wrong any more.
const PATIENCE: Duration = Duration::from_secs(30);

/// Every worker ends; then each name must be free, and nothing may be left of it. Exceptions are noted.
pub(super) async fn drain(run: &mut Run<'_>) -> Outcome<()> {
    run.workers.iter_mut().for_each(Worker::dismiss);
    if !all_have_ended(run).await? {
        run.gate.note_counts(&run.log);
        return Ok(());
    }
    let settle = Duration::from_micros(run.asked.bounds.stall);
    let guarantees = run.client.guarantees();
    let names = NAMES.iter().filter(|(_, kind)| kind.fits(&guarantees));
    for (name, kind) in names.copied() {
        match timeout(settle, take_surely(&run.client, name, kind)).await {
            // The reaper takes care of a release whose answer is late; claims left then are seen below.
            Ok(guard) => drop(guard?.release().await),
            Err(_) => left(run, name, 1),
        }
    }
    let end = Instant::now() + settle;
    let mut lines = run.client.inspect(&Query::all()).await?;
    while !lines.is_empty() && Instant::now() < end {
        sleep(Duration::from_millis(5)).await;
        lines = run.client.inspect(&Query::all()).await?;
    }
    for line in lines {
        let count = line.holders.len() + line.waiters.len();
        left(run, line.name.as_str(), count as u64);
    }
    run.gate.note_counts(&run.log);
    let _ = run.client.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Asks again if an answer was late, as it may be on a slow machine.
async fn take_surely(client: &Client, name: &str, kind: Kind) -> leasehold::Result<Guard> {
    loop {
        match take_whole(client, name, kind).await {
            Err(error) if error.may_have_happened() => sleep(Duration::from_millis(5)).await,
            taken => return taken,
        }
    }
}

fn left(run: &Run<'_>, name: &str, count: u64) {
    let name = name.to_owned();
    run.log.note(0, What::Left { name, count });
}

/// Waits for the workers. One that waits for ever breaks a promise; the engine's view of it is kept with the histories.
async fn all_have_ended(run: &mut Run<'_>) -> Outcome<bool> {
    let deadline = Instant::now() + PATIENCE;
    let mut ended = true;
    for at in 0..run.workers.len() {
        while !run.workers[at].has_ended()? {
            if Instant::now() > deadline {
                ended = false;
                left(run, &format!("worker {}", run.workers[at].who()), 1);
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
    if !ended {
        let lines = run.client.inspect(&Query::all()).await;
        std::fs::write(run.plan.into.join("stuck.txt"), format!("{lines:#?}"))?;
    }
    Ok(ended)
}
