//! A mutex: exclusion, hand-over and re-entrance, both ways.

use std::time::Duration;

use leasehold::Released;
use leasehold::engine::Clock;

use super::{
    GENERATIONS, HAND_OVER, ROUNDS, listening, median, of_kind, ours, redisson, redisson_at,
    server, since, waits,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mutex_excludes_both_ways() {
    for version in GENERATIONS {
        excludes(version).await;
    }
}

async fn excludes(version: &str) {
    let mut redisson = redisson_at(version);
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
    for version in GENERATIONS {
        hands_over_to_us(version).await;
    }
}

async fn hands_over_to_us(version: &str) {
    let mut redisson = redisson_at(version);
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
        println!("{version} {lock}: Redisson to us {median:?}");
        assert!(median < HAND_OVER, "{lock}: {median:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn we_hand_over_to_redisson() {
    for version in GENERATIONS {
        hand_over_to_redisson(version).await;
    }
}

async fn hand_over_to_redisson(version: &str) {
    let mut redisson = redisson_at(version);
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
        println!("{version} {lock}: we to Redisson {median:?}");
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
