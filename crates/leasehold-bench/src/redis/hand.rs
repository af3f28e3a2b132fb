//! From one process to another: release called until the next holder runs, beside publish until received.

use std::io::BufRead;
use std::process::Command;
use std::time::Duration;

use futures_core::Stream;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::redis::Redis;
use rustix::time::{ClockId, clock_gettime};

use crate::Settings;
use crate::measure::{Duel, Outcome, in_turn};
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
    let mut plain = pair(&server, "plain")?;
    let mut ours = || micros(&mut locks);
    let mut peer = || micros(&mut messages);
    let mut floor = || micros(&mut plain);
    let all: [&mut dyn FnMut() -> _; 3] = [&mut ours, &mut peer, &mut floor];
    let [locks, messages, floors] = in_turn(settings.repeats, all)?;
    let name = "redis hand-over beside publish to receive";
    let duel = Duel::of(&locks, &messages);
    Row::ratio(name, "µs", &duel, Goal::AtMost(1.8)).print();
    let name = "  compare, SET and PUBLISH beside it";
    Row::read(name, "µs", &Duel::of(&floors, &messages)).print();
    let name = "  hand-over beside compare, SET, PUBLISH";
    Row::read(name, "µs", &Duel::of(&locks, &floors)).print();
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

/// `redis-hand locks|messages|plain URL a|b`: says when it got it and when it gave it, in nanoseconds of the machine.
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
        give: ::redis::Cmd,
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
        let mut conn = client.get_multiplexed_async_connection().await?;
        let mut listening = client.get_async_pubsub().await?;
        // Each kind has channels of its own.
        listening.subscribe(format!("{what}-{side}")).await?;
        Ok(Self::Message {
            begins: side == "a",
            give: give(what, &mut conn, side).await?,
            conn,
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
                    give,
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
                    let _: i64 = give.query_async(conn).await?;
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

/// The least that hands a lock over: it is compared, it is the other's, and the other hears it.
const HAND_OVER: &str = "if (redis.call('GET', KEYS[1]) or ARGV[1]) ~= ARGV[1] then return redis.error_reply('ERR not ours') end
    redis.call('SET', KEYS[1], ARGV[2], 'PX', '30000')
    return redis.call('PUBLISH', ARGV[2], 'x')";

/// How a side without our client gives to the other.
async fn give(
    what: &str,
    conn: &mut ::redis::aio::MultiplexedConnection,
    side: &str,
) -> Outcome<::redis::Cmd> {
    let other = if side == "a" { "b" } else { "a" };
    let [side, other] = [side, other].map(|side| format!("{what}-{side}"));
    if what == "messages" {
        let mut publish = ::redis::cmd("PUBLISH");
        let _ = publish.arg(other).arg("x");
        return Ok(publish);
    }
    let mut load = ::redis::cmd("SCRIPT");
    let digest: String = load.arg("LOAD").arg(HAND_OVER).query_async(conn).await?;
    let mut run = ::redis::cmd("EVALSHA");
    let _ = run.arg(digest).arg(1).arg("plain").arg(side).arg(other);
    Ok(run)
}

/// The clock that all processes of a machine share.
fn nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
