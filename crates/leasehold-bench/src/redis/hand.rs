//! From one process to another: release called until the next holder runs, beside publish until received.

use std::io::BufRead;
use std::process::Command;
use std::time::Duration;

use futures_core::Stream;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::redis::Redis;
use rustix::time::{ClockId, clock_gettime};

use crate::Settings;
use crate::measure::{Outcome, duel};
use crate::memory::one_thread;
use crate::table::{Goal, Row};

const ROUNDS: usize = 200;

/// Between two hand-overs: long enough that the other one waits by then.
const WORK: Duration = Duration::from_millis(2);

/// Two processes hand a lock, or a message, to each other.
pub(crate) fn over(settings: &Settings) -> Outcome<()> {
    let server = Redis::start();
    let mut locks = pair(&server, "locks")?;
    let mut messages = pair(&server, "messages")?;
    let ours = || micros(&mut locks);
    let peer = || micros(&mut messages);
    let duel = duel(settings.repeats, ours, peer)?;
    let name = "redis hand-over beside publish to receive";
    Row::ratio(name, "µs", &duel, Goal::AtMost(1.3)).print();
    Ok(())
}

fn pair(server: &Redis, what: &str) -> Outcome<[Process; 2]> {
    let program = std::env::current_exe()?;
    let start = |side: &str| {
        let mut command = Command::new(&program);
        let _ = command.args(["redis-hand", what, &server.url(), side]);
        let process = Process::start(&mut command);
        assert_eq!(process.hear(), "ready");
        process
    };
    Ok([start("a"), start("b")])
}

/// The middle of what it took to reach the other side.
fn micros(sides: &mut [Process; 2]) -> Outcome<f64> {
    sides.iter_mut().for_each(|side| side.say("go"));
    let mut events = Vec::new();
    for side in sides {
        let said = side.hear();
        for pair in said.split_whitespace() {
            let (got, gave) = pair.split_once(':').ok_or("a side's line is torn")?;
            events.push((got.parse::<u64>()?, gave.parse::<u64>()?));
        }
    }
    events.sort_unstable();
    // Each got it after the one before gave it; the first rounds are the beginning.
    let mut times: Vec<_> = events
        .windows(2)
        .skip(10)
        .map(|two| two[1].0.saturating_sub(two[0].1))
        .collect();
    times.sort_unstable();
    Ok(times[times.len() / 2] as f64 / 1e3)
}

/// `redis-hand locks|messages URL a|b`: says when it got it and when it gave it, in nanoseconds of the machine.
pub(crate) fn work(mut arguments: impl Iterator<Item = String>) -> Outcome<()> {
    let mut next = || arguments.next().ok_or("a side needs three arguments");
    let (what, url, side) = (next()?, next()?, next()?);
    let runtime = one_thread()?;
    let mut side = runtime.block_on(Side::connect(&what, &url, &side))?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let _ = line?;
        let said: Vec<_> = runtime.block_on(side.run())?;
        let said: Vec<_> = said
            .iter()
            .map(|(got, gave)| format!("{got}:{gave}"))
            .collect();
        println!("{}", said.join(" "));
    }
    Ok(())
}

enum Side {
    Lock(leasehold::Client),
    Message {
        begins: bool,
        to: String,
        conn: ::redis::aio::MultiplexedConnection,
        heard: std::pin::Pin<Box<dyn Stream<Item = ::redis::Msg> + Send>>,
    },
}

impl Side {
    async fn connect(what: &str, url: &str, side: &str) -> Outcome<Self> {
        if what == "locks" {
            return Ok(Self::Lock(leasehold::connect(url).await?));
        }
        let client = ::redis::Client::open(url)?;
        let mut listening = client.get_async_pubsub().await?;
        listening.subscribe(side).await?;
        Ok(Self::Message {
            begins: side == "a",
            to: if side == "a" { "b" } else { "a" }.to_owned(),
            conn: client.get_multiplexed_async_connection().await?,
            heard: Box::pin(listening.into_on_message()),
        })
    }

    async fn run(&mut self) -> Outcome<Vec<(u64, u64)>> {
        let mut events = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            match self {
                Self::Lock(client) => {
                    let guard = client.mutex("hand").strict().lock().await?;
                    let got = nanos();
                    tokio::time::sleep(WORK).await;
                    events.push((got, nanos()));
                    let _ = guard.release().await?;
                }
                Self::Message {
                    begins,
                    to,
                    conn,
                    heard,
                } => {
                    if !(*begins && round == 0) {
                        let next =
                            std::future::poll_fn(|context| heard.as_mut().poll_next(context));
                        drop(next.await.ok_or("nothing more is heard")?);
                    }
                    let got = nanos();
                    tokio::time::sleep(WORK).await;
                    events.push((got, nanos()));
                    let _: i64 = ::redis::cmd("PUBLISH")
                        .arg(&*to)
                        .arg("x")
                        .query_async(conn)
                        .await?;
                }
            }
        }
        if let Self::Message {
            begins: true,
            heard,
            ..
        } = self
        {
            // The other side's last word.
            let next = std::future::poll_fn(|context| heard.as_mut().poll_next(context));
            drop(next.await);
        }
        Ok(events)
    }
}

/// The clock that all processes of a machine share.
fn nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
