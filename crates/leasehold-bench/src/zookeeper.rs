//! ZooKeeper beside Curator and kazoo: the same server, in turn.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::peers::{java, python};
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::zookeeper::ZooKeeper;
use tokio::task::JoinSet;
use zookeeper_client::{Acls, CreateMode};

use crate::Settings;
use crate::measure::{Outcome, Spread, Watch, duel};
use crate::memory::one_thread;
use crate::table::{Goal, Row};

const SLICE: Duration = Duration::from_secs(2);
/// Of one locker alone: short, and often in turn, because the machine changes its pace from one second to the next.
const SHORT: Duration = Duration::from_millis(100);
const OFTEN: usize = 4;
const PROCESSES: usize = 2;
const LOCKERS_EACH: usize = 15;

fn curator(server: &ZooKeeper) -> Process {
    ready(java("curator").args([&server.address(), "10000"]))
}

fn kazoo(server: &ZooKeeper) -> Process {
    ready(python("kazoo").args([&server.address(), "10"]))
}

fn ready(command: &mut Command) -> Process {
    let process = Process::start(command);
    assert_eq!(process.hear(), "ready");
    process
}

/// Lock and release, a second, of one or several lockers in a process.
fn cycles(peers: &mut [Process], path: &str, lockers: usize, slice: Duration) -> Outcome<f64> {
    for peer in peers.iter_mut() {
        peer.say(&format!("cycles {path} {lockers} {}", slice.as_millis()));
    }
    let mut total = 0.0;
    for peer in peers {
        let said = peer.hear();
        let count: f64 = said.strip_prefix("cycles ").ok_or(said.clone())?.parse()?;
        total += count;
    }
    Ok(total / slice.as_secs_f64())
}

/// One locker alone.
pub(crate) fn uncontended(settings: &Settings) -> Outcome<()> {
    let server = ZooKeeper::start();
    let runtime = one_thread()?;
    let url = format!("{}/bench", server.url());
    let client = runtime.block_on(leasehold::connect(&url))?;
    let alone = |slice| Ok(runtime.block_on(runtime.spawn(alone(client.clone(), slice)))??);
    let ours = || alone(SHORT);
    for (name, peer, goal) in [
        ("curator", curator(&server), 1.4),
        ("kazoo", kazoo(&server), 3.0),
    ] {
        let mut peer = [peer];
        let duel = duel(OFTEN * settings.many(), ours, || {
            cycles(&mut peer, "/bench/peer", 1, SHORT)
        })?;
        let row = format!("zookeeper uncontended beside {name}");
        Row::ratio(&row, "/s", &duel, Goal::AtLeast(goal)).print();
        floor(settings, &server, name, &mut peer)?;
    }
    let (received, zxid) = (server.received(), server.zxid());
    let cycles: f64 = alone(SLICE)? * SLICE.as_secs_f64();
    let each = |count: u64| Spread::of(vec![count as f64 / cycles]);
    let requests = each(server.received() - received);
    Row::alone(
        "zookeeper requests per cycle",
        "",
        requests,
        Goal::AtMost(3.05),
    )
    .print();
    let writes = each(server.zxid() - zxid);
    Row::alone("zookeeper writes per cycle", "", writes, Goal::AtMost(2.05)).print();
    Ok(())
}

/// The two writes of a cycle and nothing else, by a client crate.
fn floor(settings: &Settings, server: &ZooKeeper, name: &str, peer: &mut [Process]) -> Outcome<()> {
    let runtime = one_thread()?;
    let client = runtime.block_on(zookeeper_client::Client::connect(&server.address()))?;
    let writes = async |client: zookeeper_client::Client| {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (watch, mut count) = (Watch::start(), 0.0);
        while watch.elapsed() < SHORT {
            let (_, sequence) = client.create("/bare-", &[], &options).await?;
            client.delete(&format!("/bare-{sequence}"), None).await?;
            count += 1.0;
        }
        Ok::<f64, zookeeper_client::Error>(count / watch.elapsed().as_secs_f64())
    };
    let bare = || Ok(runtime.block_on(writes(client.clone()))?);
    let duel = duel(OFTEN * settings.many(), bare, || {
        cycles(peer, "/bench/peer", 1, SHORT)
    })?;
    let name = format!("zookeeper bare writes beside {name}");
    Row::read(&name, "/s", &duel).print();
    Ok(())
}

async fn alone(client: Client, slice: Duration) -> leasehold::Result<f64> {
    let mutex = client.mutex("ours");
    let watch = Watch::start();
    let mut count = 0.0;
    while watch.elapsed() < slice {
        let _ = mutex.lock().await?.release().await?;
        count += 1.0;
    }
    Ok(count / watch.elapsed().as_secs_f64())
}

/// Thirty lockers over two processes on one name.
pub(crate) fn contended(settings: &Settings) -> Outcome<()> {
    let server = ZooKeeper::start();
    let url = format!("{}/bench", server.url());
    let mut peers: Vec<_> = (0..PROCESSES).map(|_| curator(&server)).collect();
    for (how, case, goal) in [("strict", "strict", 1.2), ("turns", "with turns", 10.0)] {
        let duel = duel(
            settings.repeats,
            || ours(&url, how),
            || cycles(&mut peers, "/bench/contended", LOCKERS_EACH, SLICE),
        )?;
        let name = format!("zookeeper 2 x 15 {case} beside curator");
        Row::ratio(&name, "/s", &duel, Goal::AtLeast(goal)).print();
    }
    Ok(())
}

fn ours(url: &str, how: &str) -> Outcome<f64> {
    let program = std::env::current_exe()?;
    let spawn = |_| {
        let mut command = Command::new(&program);
        let _ = command.args(["zookeeper-lockers", url, how]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
    };
    let workers: Vec<Child> = (0..PROCESSES).map(spawn).collect::<Result<_, _>>()?;
    let mut total = 0.0;
    for worker in workers {
        let said = worker.wait_with_output()?.stdout;
        let count: f64 = std::str::from_utf8(&said)?.trim().parse()?;
        total += count;
    }
    Ok(total / SLICE.as_secs_f64())
}

/// `zookeeper-lockers URL strict|turns`: fifteen tasks of one process; says how often they held it together.
pub(crate) fn work(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let mut next = || arguments.next().ok_or("a worker needs two arguments");
    let (url, strict) = (next()?, next()? == "strict");
    let count = one_thread()?.block_on(lockers(&url, strict))?;
    println!("{count}");
    Ok(())
}

async fn lockers(url: &str, strict: bool) -> Outcome<u64> {
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
    let mut total = 0;
    while let Some(done) = tasks.join_next().await {
        total += done??;
    }
    Ok(total)
}
