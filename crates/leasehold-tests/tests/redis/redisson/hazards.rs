//! Redisson's layout when connections end, scripts are forgotten and permits die with their holder.
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::{Clock, Query};
use leasehold::{Client, ConnectOptions, Name, Released};
use leasehold_testkit::poll::{eventually, until};
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::redis::Redis;

const LEASE: Duration = Duration::from_secs(2);

fn server() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
}

async fn client(server: &Redis, options: &str) -> Client {
    let url = format!("{}?layout=redisson{options}", server.url());
    let connected = ConnectOptions::new().lease(LEASE).connect(&url).await;
    connected.expect("connected")
}

async fn waits(client: &Client, name: &str) {
    let query = Query::name(Name::new(name).expect("a name"));
    eventually("a client waits", async || {
        let lines = client.inspect(&query).await.expect("inspected");
        match lines.iter().any(|line| !line.waiters.is_empty()) {
            true => Ok(()),
            false => Err(format!("{lines:?}")),
        }
    })
    .await;
}

/// A waiter is served and a holder keeps its lock although every connection ended meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_end() {
    let server = Redis::start();
    for options in ["", "&lock=fair"] {
        let (one, two) = (
            client(&server, options).await,
            client(&server, options).await,
        );
        let name = format!("cut{options}");
        let held = one.mutex(&name).lock().await.expect("free");
        let mutex = two.mutex(&name);
        let waiter = tokio::spawn(async move { mutex.lock().await });
        waits(&two, &name).await;
        assert_eq!(
            server.cli("CLIENT KILL TYPE pubsub SKIPME yes").trim(),
            "1",
            "the waiter's"
        );
        let _ = server.cli("CLIENT KILL TYPE normal SKIPME yes");
        until("it listens again", || {
            let channels = server.cli("PUBSUB CHANNELS redisson_lock__channel*");
            if channels.contains(&name) {
                Ok(())
            } else {
                Err(channels)
            }
        });
        held.check().expect("still held");
        let start = Clock::boot().now();
        assert_eq!(held.release().await.expect("released"), Released::Released);
        let guard = waiter.await.expect("no panic").expect("granted");
        let took = Duration::from_micros(Clock::boot().now() - start);
        assert!(
            took < LEASE / 4,
            "by a message, not by a heartbeat: {took:?}"
        );
        drop(guard);
    }
}

/// A server that has forgotten the script is told it again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_forgotten() {
    let client = client(server(), "").await;
    let held = client.mutex("flushed").lock().await.expect("free");
    assert_eq!(server().cli("SCRIPT FLUSH").trim(), "OK");
    assert_eq!(held.release().await.expect("released"), Released::Released);
    assert_eq!(server().cli("SCRIPT FLUSH").trim(), "OK");
    drop(client.mutex("flushed").lock().await.expect("free"));
}

/// A plain semaphore has no owners; permits of a dead process of ours come back all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_a_dead_process() {
    for option in ["plain", "expirable"] {
        let (client, name) = (
            client(server(), &format!("&semaphore={option}")).await,
            format!("dead:{option}"),
        );
        let url = format!("{}?layout=redisson&semaphore={option}", server().url());
        let mut holder =
            Process::start(Command::new(env!("CARGO_BIN_EXE_locker")).args([&url, "1000"]));
        assert_eq!(holder.hear(), "ready");
        assert!(
            holder
                .ask(&format!("permits {name} 2 2"))
                .starts_with("held")
        );
        assert!(
            client
                .semaphore(&name, 2)
                .try_acquire()
                .await
                .expect("a try")
                .is_none(),
            "{option}"
        );
        holder.kill();
        let soon = client.semaphore(&name, 2).acquire_within(LEASE * 3).await;
        assert!(soon.expect("asked").is_some(), "{option}: they are lost");
    }
}

/// Fences grow from grant to grant, over holds of Java clients too, and an idle lock leaves nothing behind for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_and_nothing_is_left() {
    let client = client(server(), "").await;
    let mut last = 0;
    for round in 0..50 {
        let guard = client.mutex("grows").lock().await.expect("free");
        assert!(guard.fence().get() > last, "round {round}");
        last = guard.fence().get();
        assert_eq!(guard.release().await.expect("released"), Released::Released);
        // As a Java thread that takes and gives back.
        let _ = server().cli("HSET grows 00000000-0000-4000-8000-000000000000:1 1");
        let _ = server().cli("DEL grows");
    }
    until("no key is left", || {
        let keys = server().cli("KEYS *grows*");
        if keys.trim().is_empty() {
            Ok(())
        } else {
            Err(keys)
        }
    });
}
