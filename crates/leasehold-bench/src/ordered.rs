//! What etcd and Consul have in common: lockers of ours in processes, and what a hand-over costs the server.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, Name};
use leasehold_testkit::process::Process;
use tokio::task::JoinSet;

use crate::measure::{Outcome, Watch};
use crate::memory::one_thread;

pub(crate) const SLICE: Duration = Duration::from_secs(2);
/// Of one locker alone: short, and often in turn, because the machine changes its pace from one second to the next.
pub(crate) const SHORT: Duration = Duration::from_millis(200);
pub(crate) const PROCESSES: usize = 2;
pub(crate) const LOCKERS_EACH: usize = 15;

/// A Go program that has said it is ready.
pub(crate) fn ready(command: &mut Command) -> Process {
    let process = Process::start(command);
    assert_eq!(process.hear(), "ready");
    process
}

/// The cycles a second of peers that are told the same.
pub(crate) fn cycles(peers: &mut [Process], command: &str, slice: Duration) -> Outcome<f64> {
    for peer in peers.iter_mut() {
        peer.say(&format!("{command} {}", slice.as_millis()));
    }
    let mut total = 0.0;
    for peer in peers {
        let said = peer.hear_within(slice * 30);
        let count: f64 = said.strip_prefix("cycles ").ok_or(said.clone())?.parse()?;
        total += count;
    }
    Ok(total / slice.as_secs_f64())
}

/// Lock and release, a second, by one locker.
pub(crate) async fn alone(client: Client) -> leasehold::Result<f64> {
    let mutex = client.mutex("ours");
    let (watch, mut count) = (Watch::start(), 0.0);
    while watch.elapsed() < SHORT {
        let _ = mutex.lock().await?.release().await?;
        count += 1.0;
    }
    Ok(count / watch.elapsed().as_secs_f64())
}

/// Thirty lockers over two processes: how often they hold a name, a second, and the least by the most served of them.
pub(crate) fn contended(url: &str, how: &str, shares: &mut Vec<f64>) -> Outcome<f64> {
    let program = std::env::current_exe()?;
    let spawn = |_| {
        let mut command = Command::new(&program);
        let _ = command.args(["ordered-lockers", url, how]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    };
    let workers: Vec<Child> = (0..PROCESSES).map(spawn).collect::<Result<_, _>>()?;
    let mut all: Vec<f64> = Vec::new();
    for worker in workers {
        let said = worker.wait_with_output()?.stdout;
        for count in std::str::from_utf8(&said)?.split_whitespace() {
            all.push(count.parse()?);
        }
    }
    let least = all.iter().copied().fold(f64::MAX, f64::min);
    let most = all.iter().copied().fold(1.0, f64::max);
    shares.push(least / most);
    Ok(all.iter().sum::<f64>() / SLICE.as_secs_f64())
}

/// `ordered-lockers URL strict|turns`: fifteen tasks of one process; says how often each held the name.
pub(crate) fn work(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let mut next = || arguments.next().ok_or("a worker needs two arguments");
    let (url, strict) = (next()?, next()? == "strict");
    for count in one_thread()?.block_on(lockers(&url, strict))? {
        println!("{count}");
    }
    Ok(())
}

async fn lockers(url: &str, strict: bool) -> Outcome<Vec<u64>> {
    let client = leasehold::connect(url).await?;
    let watch = Watch::start();
    let mut tasks = JoinSet::new();
    for _ in 0..LOCKERS_EACH {
        let mutex = client.mutex("contended");
        let mutex = if strict { mutex.strict() } else { mutex };
        let _ = tasks.spawn(async move {
            let mut count = 0;
            while watch.elapsed() < SLICE {
                let guard = mutex.lock().await?;
                // Another task of this process gets to ask meanwhile.
                tokio::task::yield_now().await;
                let _ = guard.release().await?;
                count += 1;
            }
            Ok::<u64, leasehold::Error>(count)
        });
    }
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.push(done??);
    }
    Ok(all)
}

/// The requests of one hand-over, with so many waiters in so many clients: all of them hold it once, one after the other.
pub(crate) async fn hand_overs(
    url: &str,
    clients: usize,
    waiters: usize,
    requests: impl Fn() -> Outcome<f64>,
) -> Outcome<f64> {
    let first = leasehold::connect(url).await?;
    let held = first.mutex("hand").lock().await?;
    let (mut all, mut tasks) = (Vec::new(), JoinSet::new());
    for _ in 0..clients {
        all.push(leasehold::connect(url).await?);
    }
    for at in 0..waiters {
        let mutex = all[at % clients].mutex("hand").strict();
        let _ = tasks.spawn(async move {
            let guard = mutex.lock().await?;
            guard.release().await
        });
    }
    let query = Query::name(Name::new("hand")?);
    let watch = Watch::start();
    loop {
        let lines = first.inspect(&query).await?;
        if lines
            .first()
            .is_some_and(|line| line.waiters.len() == waiters)
        {
            break;
        }
        if watch.elapsed() > Duration::from_secs(60) {
            return Err("they do not all wait".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let before = requests()?;
    let _ = held.release().await?;
    while let Some(done) = tasks.join_next().await {
        let _ = done??;
    }
    Ok((requests()? - before) / waiters as f64)
}
