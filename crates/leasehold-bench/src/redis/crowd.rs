//! Thirty lockers over two processes on one name: asking again at once, and after a pause of 1 ms.
//!
//! A polling peer is fast while one of its lockers takes the free lock again and again; the longest wait and the least
//! served locker show that, its 99th percentile hides it. With turns a grant goes from task to task of one process: the
//! gain needs several lockers per process.

use std::process::Command;
use std::time::Duration;

use leasehold_testkit::peers::java;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::redis::Redis;

use super::tally::Tally;
use super::{SENT, commands};
use crate::Settings;
use crate::measure::{Duel, Outcome, Spread};
use crate::table::{Goal, Row};

const TIME: Duration = Duration::from_secs(3);
const PROCESSES: usize = 2;
const LOCKERS_EACH: usize = 15;
const WATCHDOG: &str = "30000";

/// The result of one run of all its lockers.
struct Run {
    rate: f64,
    longest_ms: f64,
    p99_ms: f64,
    share: f64,
    commands: f64,
}

/// Processes of one kind, and their runs.
struct Crowd {
    who: &'static str,
    workers: Vec<Process>,
    /// The commands of its clients.
    sent: Vec<&'static str>,
    runs: Vec<Run>,
}

impl Crowd {
    fn start(server: &Redis, who: &'static str) -> Outcome<Self> {
        let program = std::env::current_exe()?;
        let begin = |_| {
            let mut command = match who {
                "redisson" => java("redisson"),
                _ => Command::new(&program),
            };
            let _ = match who {
                "redisson" => command.args([&server.url(), WATCHDOG]),
                _ => command.args(["redis-lockers", who, &server.url()]),
            };
            let process = Process::start(&mut command);
            assert_eq!(process.hear(), "ready");
            process
        };
        let workers = (0..PROCESSES).map(begin).collect();
        let mut sent = SENT.to_vec();
        if who.starts_with("rslock") {
            sent.push("set");
        }
        Ok(Self {
            who,
            workers,
            sent,
            runs: Vec::new(),
        })
    }

    fn run(&mut self, server: &Redis, pause: u64) -> Outcome<Run> {
        let before = commands(server, &self.sent);
        let millis = TIME.as_millis();
        for worker in &mut self.workers {
            // Each kind has a name of its own: a key of one is not a lock of another.
            worker.say(&format!(
                "cycles {} {LOCKERS_EACH} {millis} {pause}",
                self.who
            ));
        }
        let mut all = Tally::default();
        for worker in &self.workers {
            all.add(Tally::read(&worker.hear_within(TIME * 10))?);
        }
        let spent = commands(server, &self.sent) - before;
        Ok(Run {
            rate: all.total() / TIME.as_secs_f64(),
            longest_ms: all.longest_ms(),
            p99_ms: all.p99_ms(),
            share: all.share(),
            commands: spent / all.total(),
        })
    }

    fn all(&self, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    fn note(&self) {
        let shown = |figure: fn(&Run) -> f64| Spread::of(self.all(figure)).to_string();
        let note = |what: &str, figure: String| {
            Row::note(&format!("  {}: {what}", self.who), figure, String::new()).print();
        };
        note("a second", shown(|run| run.rate));
        note("longest wait, ms", shown(|run| run.longest_ms));
        note("99 % wait at most, ms", shown(|run| run.p99_ms));
        note("least by most served", shown(|run| run.share));
        note("commands per acquisition", shown(|run| run.commands));
    }
}

/// The five kinds, run in turn.
fn crowds(settings: &Settings, pause: u64) -> Outcome<[Crowd; 5]> {
    let server = Redis::start();
    let start = |who| Crowd::start(&server, who);
    let mut crowds = [
        start("strict")?,
        start("turns")?,
        start("rslock")?,
        start("rslock-2ms")?,
        start("redisson")?,
    ];
    // The first time only warms up.
    for repeat in 0..=settings.repeats {
        for crowd in &mut crowds {
            let run = crowd.run(&server, pause)?;
            if repeat > 0 {
                crowd.runs.push(run);
            }
        }
    }
    crowds.iter().for_each(Crowd::note);
    Ok(crowds)
}

/// The best of the peers in each repeat.
fn best(peers: &[&Crowd], figure: fn(&Run) -> f64, better: fn(f64, f64) -> f64) -> Vec<f64> {
    let all = peers.iter().map(|peer| peer.all(figure));
    all.reduce(|a, b| a.into_iter().zip(b).map(|(a, b)| better(a, b)).collect())
        .unwrap_or_default()
}

fn against(name: &str, unit: &str, ours: Vec<f64>, peer: Vec<f64>, goal: Goal) {
    Row::ratio(
        &format!("redis 2 x 15 {name}"),
        unit,
        &Duel::of(&ours, &peer),
        goal,
    )
    .print();
}

fn alone(name: &str, ours: Vec<f64>, goal: Goal) {
    Row::alone(&format!("redis 2 x 15 {name}"), "", Spread::of(ours), goal).print();
}

const RATE: fn(&Run) -> f64 = |run| run.rate;
const LONGEST: fn(&Run) -> f64 = |run| run.longest_ms;
const SHARE: fn(&Run) -> f64 = |run| run.share;

/// Asking again at once.
pub(crate) fn contended(settings: &Settings) -> Outcome<()> {
    let [strict, turns, rslock, quick, redisson] = crowds(settings, 0)?;
    let goal = Goal::AtLeast(0.7);
    against(
        "strict / rslock",
        "/s",
        strict.all(RATE),
        rslock.all(RATE),
        goal,
    );
    let (goal, peer) = (Goal::AtMost(0.05), rslock.all(LONGEST));
    against(
        "strict / rslock, longest wait",
        "ms",
        strict.all(LONGEST),
        peer.clone(),
        goal,
    );
    alone(
        "strict, least by most",
        strict.all(SHARE),
        Goal::AtLeast(0.95),
    );
    let each = strict.all(|run| run.commands);
    alone("strict, commands each", each, Goal::AtMost(3.0));
    let peers = best(&[&rslock, &quick, &redisson], RATE, f64::max);
    against(
        "turns / best peer",
        "/s",
        turns.all(RATE),
        peers,
        Goal::AtLeast(20.0),
    );
    let theirs = redisson.all(RATE);
    against(
        "turns / redisson",
        "/s",
        turns.all(RATE),
        theirs,
        Goal::AtLeast(100.0),
    );
    against(
        "turns / rslock, longest wait",
        "ms",
        turns.all(LONGEST),
        peer,
        goal,
    );
    alone("turns, least by most", turns.all(SHARE), Goal::AtLeast(0.9));
    let why = format!("needs {LOCKERS_EACH} per process");
    Row::note("  the gain of turns", why, String::new()).print();
    Ok(())
}

/// A pause after each release: the lock must really change hands.
pub(crate) fn paused(settings: &Settings) -> Outcome<()> {
    let [strict, _, rslock, quick, redisson] = crowds(settings, 1)?;
    for (name, peer, goal) in [
        ("paused, strict / rslock", &rslock, 4.0),
        ("paused, strict / redisson", &redisson, 4.0),
        ("paused, strict / rslock 2 ms", &quick, 1.5),
    ] {
        against(
            name,
            "/s",
            strict.all(RATE),
            peer.all(RATE),
            Goal::AtLeast(goal),
        );
    }
    let p99 = |run: &Run| run.p99_ms;
    let peers = best(&[&rslock, &quick, &redisson], p99, f64::min);
    let name = "paused, strict / best, 99 % wait";
    against(name, "ms", strict.all(p99), peers, Goal::AtMost(0.2));
    Ok(())
}
