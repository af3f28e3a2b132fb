//! The cost of a line of any length, and of ten thousand held locks while nothing happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::servers::redis::Redis;
use tokio::task::JoinSet;

use super::{SENT, commands};
use crate::Settings;
use crate::measure::{Outcome, Spread};
use crate::memory::one_thread;
use crate::table::{Goal, Row};
use crate::waiters::cpu_ms;

const TIME: Duration = Duration::from_secs(2);
const HELD: usize = 10_000;
const LEASE: Duration = Duration::from_secs(30);
/// Claims are kept alive at a third of their lease.
const PERIOD: Duration = Duration::from_secs(10);
const PERIODS: u32 = 2;

/// Commands per acquisition with more and more waiters in one line.
pub(crate) fn waiting(settings: &Settings) -> Outcome<()> {
    let server = Redis::start();
    let runtime = one_thread()?;
    for waiters in [10, 100, 1_000, 10_000] {
        let mut each = Vec::new();
        for _ in 0..settings.repeats {
            each.push(runtime.block_on(line(&server, waiters))?);
        }
        let name = format!("redis commands each, {waiters} waiters");
        Row::alone(&name, "", Spread::of(each), Goal::AtMost(3.0)).print();
    }
    Ok(())
}

async fn line(server: &Redis, waiters: usize) -> Outcome<f64> {
    let client = leasehold::connect(&server.url()).await?;
    let first = client.mutex("long").strict().lock().await?;
    let (served, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let before = commands(server, SENT);
    let mut tasks = JoinSet::<leasehold::Result<()>>::new();
    for _ in 0..waiters {
        let (mutex, served, stop) = (client.mutex("long").strict(), served.clone(), stop.clone());
        let _ = tasks.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let guard = mutex.lock().await?;
                let _ = served.fetch_add(1, Ordering::Relaxed);
                let _ = guard.release().await?;
            }
            Ok(())
        });
    }
    while commands(server, SENT) - before < waiters as f64 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _ = first.release().await?;
    let (before, since) = (commands(server, SENT), served.load(Ordering::Relaxed));
    tokio::time::sleep(TIME).await;
    let spent = commands(server, SENT) - before;
    let each = spent / (served.load(Ordering::Relaxed) - since) as f64;
    stop.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let _ = client.shutdown(TIME).await?;
    Ok(each)
}

/// Ten thousand locks held, by their heartbeats alone.
pub(crate) fn held(settings: &Settings) -> Outcome<()> {
    let server = Redis::start();
    let runtime = one_thread()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let guards = runtime.block_on(hold(&client))?;
    let (mut sent, mut busy) = (Vec::new(), Vec::new());
    for _ in 0..settings.repeats.min(3) {
        let (before, cpu) = (commands(&server, SENT), cpu_ms());
        runtime.block_on(async { tokio::time::sleep(PERIOD * PERIODS).await });
        busy.push((cpu_ms() - cpu) / (PERIOD * PERIODS).as_millis() as f64 * 100.0);
        sent.push((commands(&server, SENT) - before) / f64::from(PERIODS));
    }
    let name = "redis 10,000 held, commands per heartbeat";
    Row::alone(name, "", Spread::of(sent), Goal::AtMost(400.0)).print();
    let name = "redis 10,000 held, CPU of the client";
    Row::alone(name, "%", Spread::of(busy), Goal::AtMost(2.0)).print();
    drop(guards);
    let _ = runtime.block_on(client.shutdown(TIME))?;
    Ok(())
}

async fn hold(client: &Client) -> Outcome<Vec<leasehold::Guard>> {
    let mut guards = Vec::with_capacity(HELD);
    for at in 0..HELD {
        let mutex = client.mutex(format!("held:{at}")).lease(LEASE);
        guards.push(mutex.lock().await?);
    }
    Ok(guards)
}
