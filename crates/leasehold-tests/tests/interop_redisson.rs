//! Redisson's locks and ours on one name: they exclude each other, hand over to each other and survive each other.
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::Clock;
use leasehold::{Client, ErrorKind, Options, Released};
use leasehold_testkit::peers::java;
use leasehold_testkit::poll::until;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::redis::Redis;

/// Redisson's watchdog and our lease: short, so that a crash is soon over.
const LEASE_MS: &str = "3000";
const LEASE: Duration = Duration::from_secs(3);
/// A hand-over takes no longer than this; half of the rounds must show it, whatever else the machine does.
const HAND_OVER: Duration = Duration::from_millis(50);
const ROUNDS: usize = 21;

fn server() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
}

fn url(options: &str) -> String {
    format!("{}?layout=redisson{options}", server().url())
}

fn redisson() -> Process {
    let redisson = Process::start(java("redisson").args([&server().url(), LEASE_MS]));
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
    let connected = Options::new().lease(LEASE).connect(&url(options)).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_excludes_both_ways() {
    let mut redisson = redisson();
    for (lock, name) in [
        ("lock", "m:plain"),
        ("fair", "m:fair"),
        ("fenced", "m:fenced"),
        ("lock", "{m}:tag"),
    ] {
        let client = of_kind(lock).await;
        let held = client.mutex(name).lock().await.expect("free");
        assert_eq!(
            redisson.ask(&format!("try-{lock} {name}")),
            "busy",
            "{lock}"
        );
        assert_eq!(held.release().await.expect("released"), Released::Released);
        assert_eq!(
            redisson.ask(&format!("try-{lock} {name}")),
            "held",
            "{lock}"
        );
        assert!(
            client
                .mutex(name)
                .try_lock()
                .await
                .expect("a try")
                .is_none(),
            "{lock}"
        );
        assert_eq!(
            redisson.ask(&format!("release-{lock} {name}")),
            "released",
            "{lock}"
        );
        drop(
            client
                .mutex(name)
                .try_lock()
                .await
                .expect("a try")
                .expect("free again"),
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_hands_over_to_us() {
    let mut redisson = redisson();
    for lock in ["lock", "fair"] {
        let (client, name) = (of_kind(lock).await, format!("to-us:{lock}"));
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            assert_eq!(redisson.ask(&format!("{lock} {name}")), "held");
            let mutex = client.mutex(&name);
            let waiter = tokio::spawn(async move {
                let guard = mutex.lock().await.expect("granted");
                (
                    Clock::boot().now(),
                    guard.release().await.expect("released"),
                )
            });
            waits(&client, &name).await;
            let start = Clock::boot().now();
            redisson.say(&format!("release-{lock} {name}"));
            let (end, _) = waiter.await.expect("no panic");
            times.push(Duration::from_micros(end - start));
            assert_eq!(redisson.hear(), "released");
        }
        let median = median(times);
        println!("{lock}: Redisson to us {median:?}");
        assert!(median < HAND_OVER, "{lock}: {median:?}");
    }
}

/// Waits until one of ours waits for a name, and its subscription is there.
async fn waits(client: &Client, name: &str) {
    until_waiting(client, name, 1).await;
}

async fn until_waiting(client: &Client, name: &str, count: usize) {
    let query = leasehold::engine::Query::name(leasehold::Name::new(name).expect("a name"));
    let clock = Clock::boot();
    let end = clock.now() + 30_000_000;
    loop {
        let lines = client.inspect(&query).await.expect("inspected");
        if lines
            .first()
            .is_some_and(|line| line.waiters.len() >= count)
        {
            return;
        }
        assert!(
            clock.now() < end,
            "{count} do not wait for {name}: {lines:?}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_hand_over_to_redisson() {
    let mut redisson = redisson();
    for lock in ["lock", "fair"] {
        let (client, name) = (of_kind(lock).await, format!("to-them:{lock}"));
        let mut times = Vec::new();
        for _ in 0..ROUNDS {
            let held = client.mutex(&name).lock().await.expect("free");
            redisson.say(&format!("{lock} {name}"));
            match lock {
                "fair" => waits(&client, &name).await,
                _ => listening(&format!("redisson_lock__channel:{{{name}}}"), 1),
            }
            let start = Clock::boot().now();
            assert_eq!(held.release().await.expect("released"), Released::Released);
            assert_eq!(redisson.hear(), "held");
            times.push(since(start));
            assert_eq!(redisson.ask(&format!("release-{lock} {name}")), "released");
        }
        let median = median(times);
        println!("{lock}: we to Redisson {median:?}");
        assert!(median < HAND_OVER, "{lock}: {median:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn re_entrant_on_either_side() {
    let (client, mut redisson) = (ours("").await, redisson());
    for _ in 0..2 {
        assert_eq!(redisson.ask("lock again"), "held");
    }
    assert_eq!(redisson.ask("holds again"), "holds 2");
    assert_eq!(redisson.ask("release-lock again"), "released");
    assert!(
        client
            .mutex("again")
            .try_lock()
            .await
            .expect("a try")
            .is_none(),
        "held once more"
    );
    assert_eq!(redisson.ask("release-lock again"), "released");
    let mutex = client.mutex("again").reentrant();
    let outer = mutex.lock().await.expect("free");
    let inner = mutex.lock().await.expect("ours");
    assert_eq!(
        server().cli("HVALS again").trim(),
        "1",
        "one hold on the server"
    );
    assert_eq!(inner.release().await.expect("released"), Released::Released);
    assert_eq!(redisson.ask("try-lock again"), "busy");
    assert_eq!(outer.release().await.expect("released"), Released::Released);
    assert_eq!(redisson.ask("try-lock again"), "held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_may_die() {
    let mut redisson = redisson();
    let mut waiters = Vec::new();
    for lock in ["lock", "fair"] {
        let (client, name) = (of_kind(lock).await, format!("dead:{lock}"));
        assert_eq!(redisson.ask(&format!("{lock} {name}")), "held");
        let mutex = client.mutex(&name);
        waiters.push(tokio::spawn(async move { mutex.lock().await }));
        waits(&client, &name).await;
    }
    let start = Clock::boot().now();
    redisson.kill();
    for waiter in waiters {
        drop(
            waiter
                .await
                .expect("no panic")
                .expect("granted when the watchdog stopped"),
        );
        assert!(since(start) < LEASE * 2, "{:?}", since(start));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_may_die() {
    let mut redisson = redisson();
    for (lock, option) in [("lock", "&lock=plain"), ("fair", "&lock=fair")] {
        let (mut holder, name) = (locker(option), format!("killed:{lock}"));
        assert!(holder.ask(&format!("lock {name}")).starts_with("held"));
        let mut waiter = locker(option);
        waiter.say(&format!("lock {name}"));
        redisson.say(&format!("{lock} {name}"));
        let client = of_kind(lock).await;
        match lock {
            "fair" => until_waiting(&client, &name, 2).await,
            _ => listening(&format!("redisson_lock__channel:{{{name}}}"), 2),
        }
        let start = Clock::boot().now();
        waiter.kill();
        holder.kill();
        // Somebody of ours who lives takes the dead waiter out of a fair queue: Redisson alone waits for minutes.
        let ours = tokio::spawn(async move { client.mutex(&name).lock().await.map(drop) });
        assert_eq!(redisson.hear(), "held");
        assert!(since(start) < LEASE * 3, "{lock}: {:?}", since(start));
        assert_eq!(
            redisson.ask(&format!("release-{lock} killed:{lock}")),
            "released"
        );
        ours.await.expect("no panic").expect("granted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_renew_past_the_lease() {
    let (client, mut redisson) = (ours("").await, redisson());
    let held = client.mutex("renewed:ours").lock().await.expect("free");
    assert_eq!(redisson.ask("lock renewed:theirs"), "held");
    let start = Clock::boot().now();
    until("two leases pass", || {
        held.check().expect("still ours");
        match since(start) > LEASE * 2 {
            true => Ok(()),
            false => Err(format!("{:?}", since(start))),
        }
    });
    assert_eq!(redisson.ask("try-lock renewed:ours"), "busy");
    assert!(
        client
            .mutex("renewed:theirs")
            .try_lock()
            .await
            .expect("a try")
            .is_none()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_writers_exclude_both_ways() {
    let (client, mut redisson) = (ours("").await, redisson());
    let lock = client.rwlock("rw");
    let reader = lock.read().await.expect("free");
    assert_eq!(redisson.ask("try-read rw"), "held");
    assert_eq!(redisson.ask("try-write rw"), "busy");
    drop(reader);
    let queued = client.rwlock("rw");
    let writer = tokio::spawn(async move { queued.write().await });
    waits(&client, "rw").await;
    assert!(!writer.is_finished(), "they read");
    assert_eq!(redisson.ask("release-read rw"), "released");
    let writer = writer.await.expect("no panic").expect("granted");
    assert_eq!(redisson.ask("try-read rw"), "busy");
    redisson.say("read rw");
    listening("redisson_rwlock:{rw}", 1);
    let start = Clock::boot().now();
    let reader = writer.downgrade().await.expect("downgraded");
    assert_eq!(redisson.hear(), "held", "our downgrade wakes their readers");
    assert!(
        since(start) < LEASE / 6,
        "by a message, not by the TTL: {:?}",
        since(start)
    );
    assert_eq!(redisson.ask("release-read rw"), "released");
    assert_eq!(redisson.ask("try-write rw"), "busy");
    redisson.say("write rw");
    listening("redisson_rwlock:{rw}", 1);
    drop(reader);
    assert_eq!(redisson.hear(), "held");
    assert!(lock.try_read().await.expect("a try").is_none());
    assert_eq!(redisson.ask("release-write rw"), "released");
    drop(lock.try_write().await.expect("a try").expect("free"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_counted_together() {
    let mut redisson = redisson();
    for (word, option) in [("permits", "expirable"), ("semaphore", "plain")] {
        let (client, name) = (
            ours(&format!("&semaphore={option}")).await,
            format!("s:{option}"),
        );
        let two = client
            .semaphore(&name, 3)
            .acquire_many(2)
            .await
            .expect("free");
        assert_eq!(
            redisson.ask(&format!("try-{word} {name} 2 3")),
            "busy",
            "{word}"
        );
        assert_eq!(
            redisson.ask(&format!("{word} {name} 1 3")),
            "held",
            "{word}"
        );
        assert!(
            client
                .semaphore(&name, 3)
                .try_acquire()
                .await
                .expect("a try")
                .is_none(),
            "{word}"
        );
        let semaphore = client.semaphore(&name, 3);
        let waiter = tokio::spawn(async move { semaphore.acquire().await });
        waits(&client, &name).await;
        assert_eq!(
            redisson.ask(&format!("release-{word} {name} 1")),
            "released",
            "{word}"
        );
        let one = waiter.await.expect("no panic").expect("granted");
        redisson.say(&format!("{word} {name} 2 3"));
        listening(&format!("redisson_sc:{{{name}}}"), 1);
        drop(two);
        assert_eq!(redisson.hear(), "held", "{word}");
        drop(one);
    }
    let refused = ours("").await.semaphore("s:expirable", 4).acquire().await;
    assert_eq!(
        refused.expect_err("another number of permits").kind(),
        ErrorKind::Conflict
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_fenced_lock_grow_across_both() {
    let (client, mut redisson) = (ours("&lock=fenced").await, redisson());
    let mut last = 0;
    for round in 0..4 {
        let token = match round % 2 {
            0 => {
                let guard = client.mutex("token").lock().await.expect("free");
                guard.fence().get()
            }
            _ => {
                let said = redisson.ask("token token");
                assert_eq!(redisson.ask("release-fenced token"), "released");
                said.strip_prefix("token ")
                    .and_then(|token| token.parse().ok())
                    .expect("a token")
            }
        };
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_and_four_count_to_ten_thousand() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("number");
    std::fs::write(&file, "0").expect("writable");
    let mut lockers: Vec<_> = (0..4).map(|_| locker("")).collect();
    let mut javas: Vec<_> = (0..2).map(|_| redisson()).collect();
    for locker in &mut lockers {
        locker.say(&format!("count n {} 1250", file.display()));
    }
    for java in &mut javas {
        java.say(&format!("count n {} 1250 2", file.display()));
    }
    for process in lockers.iter().chain(&javas) {
        assert_eq!(process.hear_within(Duration::from_secs(120)), "counted");
    }
    let counted = std::fs::read_to_string(&file).expect("readable");
    assert_eq!(counted, "10000", "lost updates");
    until("nothing of the lock is left", || {
        match server().cli("EXISTS n").trim() {
            "0" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
}
