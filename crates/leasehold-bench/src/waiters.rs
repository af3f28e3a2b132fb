//! The cost of ten thousand waiters on one name while they wait, each case in a process of its own.

use std::future::Future;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::task::JoinSet;

use crate::Settings;
use crate::measure::{Duel, Outcome};
use crate::memory::one_thread;
use crate::table::{Goal, Row};

const WAITERS: u64 = 10_000;
const QUIET: Duration = Duration::from_secs(2);

/// Memory and processor time of the waiters.
pub(crate) fn waiting(settings: &Settings) -> Outcome<()> {
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    for _ in 0..settings.repeats.min(3) {
        ours.push(Cost::measure("leasehold", &settings.place()?.url)?);
        peer.push(Cost::measure("tokio", "-")?);
    }
    let kind = settings.place()?.kind();
    let memory = compare(&ours, &peer, |cost| cost.mib);
    let name = format!("{kind} 10,000 waiters, memory");
    let mut row = Row::alone(&name, "MiB", memory.ours, Goal::AtMost(64.0));
    row.peer = format!("{:.3} MiB", memory.peer.median);
    row.print();
    let time = compare(&ours, &peer, |cost| cost.cpu_ms);
    let name = format!("{kind} 10,000 waiters, CPU in a quiet 2 s");
    let mut row = Row::alone(&name, "ms", time.ours, Goal::AtMost(2.0));
    row.peer = format!("{:.3} ms", time.peer.median);
    row.print();
    Ok(())
}

fn compare(ours: &[Cost], peer: &[Cost], figure: impl Fn(&Cost) -> f64) -> Duel {
    let all = |costs: &[Cost]| costs.iter().map(&figure).collect::<Vec<_>>();
    Duel::of(&all(ours), &all(peer))
}

/// The cost of the waiters of one process.
struct Cost {
    mib: f64,
    cpu_ms: f64,
}

impl Cost {
    fn measure(who: &str, url: &str) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let output = command.args(["waiters", who, url]).output()?;
        let said = String::from_utf8(output.stdout)?;
        let figures = said.trim().split_once(' ').ok_or_else(|| {
            let why = String::from_utf8_lossy(&output.stderr);
            format!("the process of waiters failed: {why}")
        })?;
        Ok(Self {
            mib: figures.0.parse()?,
            cpu_ms: figures.1.parse()?,
        })
    }
}

/// `waiters WHO URL`: reports mebibytes and milliseconds.
pub(crate) fn work(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let who = arguments.next().ok_or("whose waiters?")?;
    let url = arguments.next().ok_or("where?")?;
    let cost = match who.as_str() {
        "tokio" => one_thread()?.block_on(tokio_waiters())?,
        _ => one_thread()?.block_on(our_waiters(&url))?,
    };
    println!("{} {}", cost.mib, cost.cpu_ms);
    Ok(())
}

async fn tokio_waiters() -> Outcome<Cost> {
    let mutex = Arc::new(tokio::sync::Mutex::new(()));
    let held = mutex.clone().lock_owned().await;
    let before = resident_mib()?;
    let (tasks, served) = start(|| {
        let mutex = mutex.clone();
        async move { drop(mutex.lock().await) }
    })
    .await;
    let cost = watch_quiet(before).await?;
    drop(held);
    finish(tasks, &served).await?;
    Ok(cost)
}

async fn our_waiters(url: &str) -> Outcome<Cost> {
    let client = leasehold::connect(url).await?;
    let held = client.mutex("crowded").lock().await?;
    let before = resident_mib()?;
    let (tasks, served) = start(|| {
        let mutex = client.mutex("crowded");
        async move {
            let guard = mutex.lock().await.expect("the lock");
            let _ = guard.release().await.expect("the release");
        }
    })
    .await;
    let cost = watch_quiet(before).await?;
    let _ = held.release().await?;
    finish(tasks, &served).await?;
    Ok(cost)
}

/// Starts the waiters and lets each go as far as it gets: on one thread that is its place in line.
async fn start<F>(waiter: impl Fn() -> F) -> (JoinSet<()>, Arc<AtomicU64>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (begun, served) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for _ in 0..WAITERS {
        let (waiter, begun, served) = (waiter(), begun.clone(), served.clone());
        let _ = tasks.spawn(async move {
            let _ = begun.fetch_add(1, Ordering::Relaxed);
            waiter.await;
            let _ = served.fetch_add(1, Ordering::Relaxed);
        });
    }
    while begun.load(Ordering::Relaxed) < WAITERS {
        tokio::task::yield_now().await;
    }
    (tasks, served)
}

async fn watch_quiet(mib_before: f64) -> Outcome<Cost> {
    let mib = resident_mib()? - mib_before;
    let before = cpu_ms();
    tokio::time::sleep(QUIET).await;
    let cpu_ms = cpu_ms() - before;
    Ok(Cost { mib, cpu_ms })
}

async fn finish(mut tasks: JoinSet<()>, served: &AtomicU64) -> Outcome<()> {
    while let Some(done) = tasks.join_next().await {
        done?;
    }
    match served.load(Ordering::Relaxed) {
        WAITERS => Ok(()),
        served => Err(format!("{served} of {WAITERS} waiters were served").into()),
    }
}

fn resident_mib() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.ok_or("no VmRSS")?.parse::<f64>()? / 1024.0)
}

/// Processor time of this process so far.
pub(crate) fn cpu_ms() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
