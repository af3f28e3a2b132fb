//! One worker process of the contended benchmark: some lockers on one name.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::task::JoinSet;

use crate::measure::{Outcome, Watch};
use crate::memory::{one_thread, two_workers};

#[derive(Clone, Copy)]
pub(crate) enum How {
    OneThread,
    TwoWorkers,
    /// Takes the lock again as soon as it can: few switches, long waits.
    FlockGreedy,
    /// Lets others run after each turn, as a line does.
    FlockYielding,
}

impl How {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::OneThread => "one-thread",
            Self::TwoWorkers => "two-workers",
            Self::FlockGreedy => "flock-greedy",
            Self::FlockYielding => "flock-yielding",
        }
    }

    fn parse(word: &str) -> Outcome<Self> {
        let all = [
            Self::OneThread,
            Self::TwoWorkers,
            Self::FlockGreedy,
            Self::FlockYielding,
        ];
        let found = all.into_iter().find(|how| how.word() == word);
        found.ok_or_else(|| "an unknown way to lock".into())
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Served {
    pub(crate) times: u64,
    pub(crate) longest_micros: u64,
}

impl Served {
    pub(crate) fn parse(line: &str) -> Outcome<Self> {
        let (times, longest) = line.split_once(' ').ok_or("a worker's line is torn")?;
        Ok(Self {
            times: times.parse()?,
            longest_micros: longest.parse()?,
        })
    }

    fn waited(&mut self, time: Duration) {
        self.times += 1;
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.longest_micros = self.longest_micros.max(micros);
    }
}

struct Job {
    how: How,
    url: String,
    /// Counted on by every holder, to see that the lock excludes; `-` where time is what matters.
    counter: Counter,
    /// The file that `flock` is taken on.
    lock: PathBuf,
    lockers: usize,
    time: Duration,
}

/// A number in a shared file, or nothing.
type Counter = Option<PathBuf>;

/// `lockers HOW URL LOCK COUNTER LOCKERS MILLIS`: reports a line per locker.
pub(crate) fn work(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let mut next = || arguments.next().ok_or("a worker needs six arguments");
    let job = Job {
        how: How::parse(&next()?)?,
        url: next()?,
        lock: next()?.into(),
        counter: Some(next()?).filter(|path| path != "-").map(PathBuf::from),
        lockers: next()?.parse()?,
        time: Duration::from_millis(next()?.parse()?),
    };
    let served = match job.how {
        How::FlockGreedy | How::FlockYielding => with_threads(&job)?,
        How::OneThread => one_thread()?.block_on(with_tasks(&job))?,
        How::TwoWorkers => two_workers()?.block_on(with_tasks(&job))?,
    };
    for locker in served {
        println!("{} {}", locker.times, locker.longest_micros);
    }
    Ok(())
}

/// Says that all is open, and waits for the others.
fn wait_for_start() -> Outcome<()> {
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

async fn with_tasks(job: &Job) -> Outcome<Vec<Served>> {
    let client = leasehold::connect(&job.url).await?;
    let counter = Arc::new(job.counter.as_ref().map(open).transpose()?);
    wait_for_start()?;
    let (start, time) = (Watch::start(), job.time);
    let mut tasks = JoinSet::<Result<Served, String>>::new();
    for _ in 0..job.lockers {
        let (mutex, counter) = (client.mutex("hot"), counter.clone());
        let _ = tasks.spawn(async move {
            let mut served = Served::default();
            while start.elapsed() < time {
                let asked = Watch::start();
                let guard = mutex.lock().await.map_err(|error| error.to_string())?;
                served.waited(asked.elapsed());
                increment(&counter).map_err(|error| error.to_string())?;
                let released = guard.release().await;
                let _ = released.map_err(|error| error.to_string())?;
            }
            Ok(served)
        });
    }
    let mut all = Vec::new();
    while let Some(done) = tasks.join_next().await {
        all.push(done??);
    }
    let _ = client.shutdown(Duration::from_secs(1)).await?;
    Ok(all)
}

/// Each thread has an open file of its own: `flock` excludes open files, not threads.
fn with_threads(job: &Job) -> Outcome<Vec<Served>> {
    let mut files = Vec::new();
    for _ in 0..job.lockers {
        let options = File::options().create(true).append(true).open(&job.lock);
        files.push((options?, job.counter.as_ref().map(open).transpose()?));
    }
    wait_for_start()?;
    let (start, time) = (Watch::start(), job.time);
    let yields = matches!(job.how, How::FlockYielding);
    let lockers: Vec<_> = files
        .into_iter()
        .map(|(lock, counter)| {
            std::thread::spawn(move || -> std::io::Result<Served> {
                let mut served = Served::default();
                while start.elapsed() < time {
                    let asked = Watch::start();
                    flock(&lock, FlockOperation::LockExclusive)?;
                    served.waited(asked.elapsed());
                    increment(&counter)?;
                    flock(&lock, FlockOperation::Unlock)?;
                    if yields {
                        std::thread::yield_now();
                    }
                }
                Ok(served)
            })
        })
        .collect();
    let served = lockers.into_iter().map(|locker| match locker.join() {
        Ok(served) => Ok(served?),
        Err(_) => Err("a locker panicked".into()),
    });
    served.collect()
}

fn open(counter: &PathBuf) -> std::io::Result<File> {
    File::options().read(true).write(true).open(counter)
}

/// Two steps, so that it goes wrong unless the lock excludes.
fn increment(counter: &Option<File>) -> std::io::Result<()> {
    let Some(counter) = counter else {
        return Ok(());
    };
    let mut bytes = [0; 8];
    counter.read_exact_at(&mut bytes, 0)?;
    let next = u64::from_le_bytes(bytes) + 1;
    counter.write_all_at(&next.to_le_bytes(), 0)
}
