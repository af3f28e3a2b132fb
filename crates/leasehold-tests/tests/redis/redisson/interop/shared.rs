//! Readers, permits and tokens.

use leasehold::ErrorKind;
use leasehold::engine::Clock;

use super::{GENERATIONS, LEASE, listening, ours, redisson, redisson_at, since, waits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_share_and_writers_exclude_both_ways() {
    for version in GENERATIONS {
        readers_and_writers(version).await;
    }
}

async fn readers_and_writers(version: &str) {
    let (client, mut redisson) = (ours("").await, redisson_at(version));
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
    // Renewed at a third of the lease, the writer's key had two thirds or more to go: without a message Redisson sleeps for that.
    assert!(
        since(start) < LEASE * 2 / 3,
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
    for version in GENERATIONS {
        permits(version).await;
    }
}

async fn permits(version: &str) {
    let mut redisson = redisson_at(version);
    for (word, option) in [("permits", "expirable"), ("semaphore", "plain")] {
        let (client, name) = (
            ours(&format!("&semaphore={option}")).await,
            format!("s:{version}:{option}"),
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
    let other = ours("")
        .await
        .semaphore(format!("s:{version}:expirable"), 4);
    let refused = other.acquire().await;
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
