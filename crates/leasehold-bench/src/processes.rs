//! Thirty lockers over two processes on one name, beside thirty threads that `flock` one file.
//!
//! First every holder increments a counter in a shared file in two steps, and at the end the counter must say what the
//! lockers say: no two held at once. Then the same is timed without the counter, which would cost more than the locks.
//!
//! A bare `flock` has no order: a thread that unlocks and locks again mostly wins. That is fast and serves in bursts, so
//! there are two peers: the greedy one, and one that yields after each turn, whose lockers are served about as evenly
//! as ours. The goal is about the second; the first is shown beside it, with what its lockers wait.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::lockers::{How, Served};
use crate::measure::{Outcome, Spread, duel};
use crate::table::{Goal, Row};
use crate::{Place, Settings};

const PROCESSES: usize = 2;
const LOCKERS_EACH: usize = 15;
const TIME: Duration = Duration::from_secs(1);

/// The results of all lockers of one run.
#[derive(Default)]
struct Tally {
    /// The least served locker by the most served one.
    share: Vec<f64>,
    longest_wait_ms: Vec<f64>,
    unserved: usize,
}

/// Thirty lockers over two processes.
pub(crate) fn contended(settings: &Settings) -> Outcome<()> {
    let kind = settings.place()?.kind();
    for (how, case) in [(How::OneThread, "1 thread"), (How::TwoWorkers, "2 workers")] {
        for (peer, against) in [
            (How::FlockYielding, "yielding"),
            (How::FlockGreedy, "greedy"),
        ] {
            let name = format!("{kind} 2 x 15 lockers, {case} / {against}");
            compare(settings, &name, how, peer)?;
        }
    }
    Ok(())
}

fn compare(settings: &Settings, name: &str, how: How, peer: How) -> Outcome<()> {
    verify(settings, how)?;
    verify(settings, peer)?;
    let (mut ours, mut theirs) = (Tally::default(), Tally::default());
    let duel = duel(
        settings.repeats,
        || ours.run(settings, how),
        || theirs.run(settings, peer),
    )?;
    let mut row = Row::ratio(name, "/s", &duel, Goal::AtLeast(5.0));
    if let How::FlockGreedy = peer {
        (row.goal, row.met) = (String::new(), None);
    }
    row.print();
    Row::note(
        "  least by most served locker",
        shares(&ours),
        shares(&theirs),
    )
    .print();
    Row::note("  longest wait of all", waits(&ours), waits(&theirs)).print();
    Row::note("  lockers never served", unserved(&ours), unserved(&theirs)).print();
    Ok(())
}

fn shares(tally: &Tally) -> String {
    Spread::of(tally.share.clone()).to_string()
}

fn waits(tally: &Tally) -> String {
    format!("{:.1} ms", Spread::of(tally.longest_wait_ms.clone()).high)
}

fn unserved(tally: &Tally) -> String {
    format!("{} in {} runs", tally.unserved, tally.share.len())
}

impl Tally {
    /// One run; acquisitions a second.
    fn run(&mut self, settings: &Settings, how: How) -> Outcome<f64> {
        let served = run_workers(&settings.place()?, how, None)?;
        let total: u64 = served.iter().map(|locker| locker.times).sum();
        let least = served.iter().map(|locker| locker.times).min().unwrap_or(0);
        let most = served.iter().map(|locker| locker.times).max().unwrap_or(0);
        let longest = served.iter().map(|locker| locker.longest_micros).max();
        self.share.push(least as f64 / most as f64);
        self.longest_wait_ms.push(longest.unwrap_or(0) as f64 / 1e3);
        self.unserved += served.iter().filter(|locker| locker.times == 0).count();
        Ok(total as f64 / TIME.as_secs_f64())
    }
}

/// Lockers that count on one file: two that hold at once lose an update.
fn verify(settings: &Settings, how: How) -> Outcome<()> {
    let place = settings.place()?;
    let counter = place.path("counter");
    File::create(&counter)?.write_all_at(&0u64.to_le_bytes(), 0)?;
    let served = run_workers(&place, how, Some(&counter))?;
    let total: u64 = served.iter().map(|locker| locker.times).sum();
    let counted = read_counter(&counter)?;
    if counted != total {
        return Err(format!("two held at once: {counted} counted, {total} served").into());
    }
    Ok(())
}

fn read_counter(path: &Path) -> Outcome<u64> {
    let mut bytes = [0; 8];
    File::open(path)?.read_exact_at(&mut bytes, 0)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Starts the workers, lets them go together, and gathers what each locker had.
fn run_workers(place: &Place, how: How, counter: Option<&Path>) -> Outcome<Vec<Served>> {
    let program = std::env::current_exe()?;
    let mut workers = Vec::new();
    for _ in 0..PROCESSES {
        let mut command = Command::new(&program);
        let _ = command.arg("lockers").args([how.word(), &place.url]);
        let _ = command.arg(place.path("flock"));
        let _ = command
            .arg(counter.unwrap_or(Path::new("-")))
            .arg(LOCKERS_EACH.to_string());
        let _ = command.arg(TIME.as_millis().to_string());
        let _ = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        workers.push(Worker::start(command.spawn()?)?);
    }
    workers.iter_mut().try_for_each(Worker::ready)?;
    workers.iter_mut().try_for_each(Worker::go)?;
    let served: Vec<_> = workers.into_iter().map(Worker::finish).collect();
    let served = served.into_iter().collect::<Outcome<Vec<_>>>()?;
    Ok(served.concat())
}

/// A child that says it is ready, waits for a word, works and reports.
struct Worker {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn start(mut child: Child) -> Outcome<Self> {
        let says = child.stdout.take().ok_or("no pipe from the worker")?;
        let says = BufReader::new(says);
        Ok(Self { child, says })
    }

    fn ready(&mut self) -> Outcome<()> {
        let mut line = String::new();
        let _ = self.says.read_line(&mut line)?;
        match line.trim() {
            "ready" => Ok(()),
            _ => Err("a worker did not get ready".into()),
        }
    }

    fn go(&mut self) -> Outcome<()> {
        let stdin = self.child.stdin.as_mut();
        Ok(stdin.ok_or("no pipe to the worker")?.write_all(b"go\n")?)
    }

    fn finish(mut self) -> Outcome<Vec<Served>> {
        let served = self
            .says
            .lines()
            .map(|line| Served::parse(&line?))
            .collect();
        match self.child.wait()?.success() {
            true => served,
            false => Err("a worker failed".into()),
        }
    }
}
