//! The memory engine beside `tokio::sync::Mutex`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::Client;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use crate::Settings;
use crate::measure::{Outcome, Slice, Watch, duel};
use crate::table::{Goal, Row};

const TASKS: u64 = 30;
const EACH: u64 = 1_000;

/// One task alone.
pub(crate) fn uncontended(settings: &Settings) -> Outcome<()> {
    let goal = Goal::AtMost(40.0);
    for (case, runtime) in [("1 thread", one_thread()?), ("2 workers", two_workers()?)] {
        let client = runtime.block_on(leasehold::connect("memory:"))?;
        let tokio = || Ok(runtime.block_on(runtime.spawn(tokio_alone()))?);
        let anew = || Ok(runtime.block_on(runtime.spawn(anew(client.clone())))??);
        let reused = || Ok(runtime.block_on(runtime.spawn(reused(client.clone())))??);
        let name = format!("memory uncontended, {case}, handle reused");
        Row::ratio(&name, "ns", &duel(settings.many(), reused, tokio)?, goal).print();
        let name = format!("memory uncontended, {case}, handle anew");
        Row::ratio(&name, "ns", &duel(settings.many(), anew, tokio)?, goal).print();
    }
    Ok(())
}

async fn tokio_alone() -> f64 {
    let mutex = tokio::sync::Mutex::new(());
    let mut slice = Slice::start();
    while slice.another() {
        drop(mutex.lock().await);
    }
    slice.nanos_each()
}

async fn reused(client: Client) -> leasehold::Result<f64> {
    let mutex = client.mutex("alone");
    let mut slice = Slice::start();
    while slice.another() {
        let _ = mutex.lock().await?.release().await?;
    }
    Ok(slice.nanos_each())
}

async fn anew(client: Client) -> leasehold::Result<f64> {
    let mut slice = Slice::start();
    while slice.another() {
        let _ = client.mutex("alone").lock().await?.release().await?;
    }
    Ok(slice.nanos_each())
}

/// Whether the holder lets others run before it releases: on one thread no task waits otherwise.
#[derive(Clone, Copy)]
enum Work {
    Nothing,
    Yields,
}

/// Thirty tasks on one name.
pub(crate) fn contended(settings: &Settings) -> Outcome<()> {
    let cases = [
        ("1 thread, holder yields", one_thread()?, Work::Yields),
        ("2 workers, holder yields", two_workers()?, Work::Yields),
        ("2 workers, no work", two_workers()?, Work::Nothing),
    ];
    for (case, runtime, work) in cases {
        let client = runtime.block_on(leasehold::connect("memory:"))?;
        let ours = || runtime.block_on(ours_contended(client.clone(), work));
        let tokio = || runtime.block_on(tokio_contended(work));
        let name = format!("memory 30 tasks, {case}");
        let duel = duel(settings.many(), ours, tokio)?;
        Row::ratio(&name, "M/s", &duel, Goal::AtLeast(0.3)).print();
    }
    Ok(())
}

async fn ours_contended(client: Client, work: Work) -> Outcome<f64> {
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::<leasehold::Result<()>>::new();
    let watch = Watch::start();
    for _ in 0..TASKS {
        let (client, counter) = (client.clone(), counter.clone());
        let _ = tasks.spawn(async move {
            let mutex = client.mutex("hot");
            for _ in 0..EACH {
                let guard = mutex.lock().await?;
                step(&counter, work).await;
                let _ = guard.release().await?;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    throughput(watch, &counter)
}

async fn tokio_contended(work: Work) -> Outcome<f64> {
    let counter = Arc::new(AtomicU64::new(0));
    let mutex = Arc::new(tokio::sync::Mutex::new(()));
    let mut tasks = JoinSet::new();
    let watch = Watch::start();
    for _ in 0..TASKS {
        let (mutex, counter) = (mutex.clone(), counter.clone());
        let _ = tasks.spawn(async move {
            for _ in 0..EACH {
                let guard = mutex.lock().await;
                step(&counter, work).await;
                drop(guard);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done?;
    }
    throughput(watch, &counter)
}

/// An increment that is lost unless the lock excludes.
async fn step(counter: &AtomicU64, work: Work) {
    let seen = counter.load(Ordering::Relaxed);
    if let Work::Yields = work {
        tokio::task::yield_now().await;
    }
    counter.store(seen + 1, Ordering::Relaxed);
}

/// Millions of acquisitions a second.
fn throughput(watch: Watch, counter: &AtomicU64) -> Outcome<f64> {
    let seconds = watch.elapsed().as_secs_f64();
    let counted = counter.load(Ordering::Relaxed);
    if counted != TASKS * EACH {
        return Err(format!("two held at once: {counted} of {} counted", TASKS * EACH).into());
    }
    Ok(counted as f64 / seconds / 1e6)
}

pub(crate) fn one_thread() -> Outcome<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

pub(crate) fn two_workers() -> Outcome<Runtime> {
    let mut builder = Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}
