//! Redis beside the bare client crate, rslock and Redisson: the same server, in turn.

mod bare;
pub(crate) mod crowd;
pub(crate) mod hand;
pub(crate) mod lockers;
pub(crate) mod many;
pub(crate) mod striped;
mod tally;

use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::servers::redis::Redis;

use self::bare::{NOTHING, PLAIN_LOCK, TwoCalls};
use crate::Settings;
use crate::measure::{Duel, Outcome, Spread, Watch, in_turn};
use crate::memory::one_thread;
use crate::table::{Goal, Row};
use crate::waiters::cpu_ms;

/// Lock and release, or two bare calls, in one measurement.
const ROUNDS: u32 = 2_000;

/// The commands of a client. A script's own commands are counted by the server as well, under other names.
const SENT: &[&str] = &["evalsha", "eval", "subscribe", "unsubscribe", "ping"];

/// How many commands of these names the server has had so far.
fn commands(server: &Redis, names: &[&str]) -> f64 {
    let said = server.cli("INFO commandstats");
    let counted = said.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let count = rest.split(',').next()?.parse::<f64>().ok()?;
        names.contains(&name).then_some(count)
    });
    counted.sum()
}

/// One locker alone; then the same under linger.
pub(crate) fn uncontended(settings: &Settings) -> Outcome<()> {
    let server = Redis::start();
    let runtime = one_thread()?;
    let client = runtime.block_on(leasehold::connect(&server.url()))?;
    let nothing = runtime.block_on(TwoCalls::prepare(&server, NOTHING))?;
    let plain = runtime.block_on(TwoCalls::prepare(&server, PLAIN_LOCK))?;
    let mut ours = || Ok(runtime.block_on(runtime.spawn(pairs(client.clone())))??);
    let mut peer = || Ok(runtime.block_on(runtime.spawn(nothing.clone().run()))??);
    let mut floor = || Ok(runtime.block_on(runtime.spawn(plain.clone().run()))??);
    let all: [&mut dyn FnMut() -> _; 3] = [&mut ours, &mut peer, &mut floor];
    let [locks, calls, floors] = in_turn(settings.many(), all)?;
    let name = "redis uncontended beside 2 bare EVALSHA";
    let duel = Duel::of(&locks, &calls);
    Row::ratio(name, "µs", &duel, Goal::AtMost(1.35)).print();
    let name = "  SET NX and compare + DEL beside them";
    Row::read(name, "µs", &Duel::of(&floors, &calls)).print();
    let name = "  uncontended beside SET NX, compare + DEL";
    Row::read(name, "µs", &Duel::of(&locks, &floors)).print();
    let (before, cost) = (commands(&server, SENT), Cost::start(&server));
    let _ = ours()?;
    let ours_cost = cost.each(&server);
    let each = (commands(&server, SENT) - before) / f64::from(ROUNDS);
    let name = "redis commands per lock + release";
    Row::alone(name, "", Spread::of(vec![each]), Goal::AtMost(2.05)).print();
    let cost = Cost::start(&server);
    let _ = peer()?;
    let name = "  processor time of client and server";
    Row::note(name, ours_cost, cost.each(&server)).print();
    let linger =
        || -> Outcome<f64> { Ok(runtime.block_on(runtime.spawn(lingering(client.clone())))??) };
    let before = commands(&server, &["evalsha"]);
    let times: Outcome<Vec<_>> = (0..settings.many()).map(|_| linger()).collect();
    let spent = commands(&server, &["evalsha"]) - before;
    let name = "redis again under linger";
    Row::alone(name, "µs", Spread::of(times?), Goal::AtMost(2.0)).print();
    // A grant has fences for 256 turns; after them another is asked for.
    let each = spent / (settings.many() as f64 * f64::from(ROUNDS));
    let name = "redis commands each under linger";
    Row::alone(name, "", Spread::of(vec![each]), Goal::AtMost(0.01)).print();
    Ok(())
}

/// Processor time so far, of this process and of the server, in microseconds.
struct Cost(f64, f64);

impl Cost {
    fn start(server: &Redis) -> Self {
        let said = server.cli("INFO cpu");
        let seconds = said.lines().filter_map(|line| {
            let (name, seconds) = line.split_once(':')?;
            let counts = matches!(name, "used_cpu_sys" | "used_cpu_user");
            seconds.trim().parse::<f64>().ok().filter(|_| counts)
        });
        Self(cpu_ms() * 1e3, seconds.sum::<f64>() * 1e6)
    }

    /// The cost of each round since.
    fn each(&self, server: &Redis) -> String {
        let (now, rounds) = (Self::start(server), f64::from(ROUNDS));
        let [client, server] = [now.0 - self.0, now.1 - self.1].map(|micros| micros / rounds);
        format!("{client:.1} + {server:.1} µs")
    }
}

async fn pairs(client: Client) -> leasehold::Result<f64> {
    let mutex = client.mutex("alone");
    let watch = Watch::start();
    for _ in 0..ROUNDS {
        let _ = mutex.lock().await?.release().await?;
    }
    Ok(micros_each(watch))
}

async fn lingering(client: Client) -> leasehold::Result<f64> {
    let mutex = client.mutex("again").linger(Duration::from_secs(60));
    let _ = mutex.lock().await?.release().await?;
    let watch = Watch::start();
    for _ in 0..ROUNDS {
        let _ = mutex.lock().await?.release().await?;
    }
    Ok(micros_each(watch))
}

fn micros_each(watch: Watch) -> f64 {
    watch.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS)
}
