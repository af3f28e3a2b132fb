//! One worker process: some lockers on one name, with our client or with rslock.

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use rslock::LockManager;
use tokio::task::JoinSet;

use super::tally::Tally;
use crate::measure::{Outcome, Watch};
use crate::memory::one_thread;

/// Long enough that no lock is lost in a benchmark.
const LEASE: Duration = Duration::from_secs(30);

enum Locker {
    Strict(leasehold::Client),
    Turns(leasehold::Client),
    Rslock(LockManager),
}

impl Locker {
    async fn connect(who: &str, url: &str) -> Outcome<Self> {
        let rslock = || LockManager::new(vec![url]);
        Ok(match who {
            "strict" => Self::Strict(leasehold::connect(url).await?),
            "turns" => Self::Turns(leasehold::connect(url).await?),
            "rslock" => Self::Rslock(rslock()),
            "rslock-2ms" => {
                let mut manager = rslock();
                manager.set_retry(u32::MAX, Duration::from_millis(2));
                Self::Rslock(manager)
            }
            _ => return Err("no locker has this name".into()),
        })
    }

    /// One lock and release; how long the wait was.
    async fn cycle(&self, name: &str) -> Result<Duration, String> {
        let asked = Watch::start();
        match self {
            Self::Strict(client) => ours(client.mutex(name).strict(), asked).await,
            Self::Turns(client) => ours(client.mutex(name), asked).await,
            Self::Rslock(manager) => {
                let guard = manager.acquire(name, LEASE).await;
                let guard = guard.map_err(|error| error.to_string())?;
                let waited = asked.elapsed();
                guard.release().await;
                Ok(waited)
            }
        }
    }
}

async fn ours(mutex: leasehold::Mutex, asked: Watch) -> Result<Duration, String> {
    let guard = mutex.lock().await.map_err(|error| error.to_string())?;
    let waited = asked.elapsed();
    let released = guard.release().await;
    let _ = released.map_err(|error| error.to_string())?;
    Ok(waited)
}

/// `redis-lockers WHO URL`: obeys `cycles NAME LOCKERS MILLIS PAUSE` line by line, as `interop/java` does.
pub(crate) fn work(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let mut next = || arguments.next().ok_or("a worker needs two arguments");
    let (who, url) = (next()?, next()?);
    let runtime = one_thread()?;
    let locker = Arc::new(runtime.block_on(Locker::connect(&who, &url))?);
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split(' ').collect();
        let ["cycles", name, lockers, millis, pause] = words[..] else {
            return Err("a worker is told what it does not know".into());
        };
        let time = Duration::from_millis(millis.parse()?);
        let pause = Duration::from_millis(pause.parse()?);
        let all = run(locker.clone(), name, lockers.parse()?, time, pause);
        println!("{}", runtime.block_on(all)?.tell());
    }
    Ok(())
}

async fn run(
    locker: Arc<Locker>,
    name: &str,
    lockers: usize,
    time: Duration,
    pause: Duration,
) -> Outcome<Tally> {
    let start = Watch::start();
    let mut tasks = JoinSet::new();
    for _ in 0..lockers {
        let (locker, name) = (locker.clone(), name.to_owned());
        let _ = tasks.spawn(async move { one(&locker, &name, start, time, pause).await });
    }
    let mut all = Tally::default();
    while let Some(done) = tasks.join_next().await {
        all.add(done??);
    }
    Ok(all)
}

async fn one(
    locker: &Locker,
    name: &str,
    start: Watch,
    time: Duration,
    pause: Duration,
) -> Result<Tally, String> {
    let (mut tally, mut times, mut longest) = (Tally::default(), 0, Duration::ZERO);
    while start.elapsed() < time {
        let waited = locker.cycle(name).await?;
        tally.waited(waited);
        longest = longest.max(waited);
        // A locker that waits when the time is over is served, and does not count.
        times += u64::from(start.elapsed() < time);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    tally.served(times, longest);
    Ok(tally)
}
