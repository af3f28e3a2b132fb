//! Redisson's locks and ours on one name: they exclude each other, hand over to each other and survive each other.

mod both;
mod death;
mod mutex;
mod shared;

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::Clock;
use leasehold::{Client, ConnectOptions};
use leasehold_testkit::peers::redisson_of;
use leasehold_testkit::poll::{eventually, until};
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::redis::Redis;

/// Redisson's watchdog and our lease: short, so that a crash is soon over.
const LEASE_MS: &str = "3000";
const LEASE: Duration = Duration::from_secs(3);
/// Both generations: today's, which most tests run, and the last of 3.x.
const TODAY: &str = "4.7.0";
const GENERATIONS: [&str; 2] = [TODAY, "3.52.0"];

/// A hand-over takes no longer than this in half of the rounds: a waiter that no message wakes looks after seconds.
const HAND_OVER: Duration = Duration::from_millis(500);
const ROUNDS: usize = 21;

fn server() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
}

fn url(options: &str) -> String {
    format!("{}?layout=redisson{options}", server().url())
}

fn redisson() -> Process {
    redisson_at(TODAY)
}

fn redisson_at(version: &str) -> Process {
    let redisson = Process::start(redisson_of(version).args([&server().url(), LEASE_MS]));
    assert_eq!(redisson.hear(), "ready");
    redisson
}

fn locker(options: &str) -> Process {
    let locker =
        Process::start(Command::new(env!("CARGO_BIN_EXE_locker")).args([&url(options), LEASE_MS]));
    assert_eq!(locker.hear(), "ready");
    locker
}

async fn ours(options: &str) -> Client {
    let connected = ConnectOptions::new()
        .lease(LEASE)
        .connect(&url(options))
        .await;
    connected.expect("connected")
}

/// One of ours with locks of the kind that Java's program calls so.
async fn of_kind(lock: &str) -> Client {
    ours(&format!("&lock={}", lock.replace("lock", "plain"))).await
}

/// Waits until so many listen on a channel: they wait, wherever they are.
fn listening(channel: &str, count: usize) {
    until("they wait", || {
        let seen = server().cli(&format!("PUBSUB NUMSUB {channel}"));
        match seen
            .lines()
            .last()
            .and_then(|line| line.trim().parse::<usize>().ok())
        {
            Some(number) if number == count => Ok(()),
            _ => Err(format!("{count} wanted: {seen}")),
        }
    });
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn since(start: u64) -> Duration {
    Duration::from_micros(Clock::boot().now() - start)
}

/// Waits until one of ours waits for a name, and its subscription is there.
async fn waits(client: &Client, name: &str) {
    until_waiting(client, name, 1).await;
}

async fn until_waiting(client: &Client, name: &str, count: usize) {
    let query = leasehold::engine::Query::name(leasehold::Name::new(name).expect("a name"));
    eventually("so many wait", async || {
        let lines = client.inspect(&query).await.expect("inspected");
        match lines.first().map_or(0, |line| line.waiters.len()) {
            seen if seen >= count => Ok(()),
            seen => Err(format!("{seen} wait for {name}, {count} wanted")),
        }
    })
    .await;
}
