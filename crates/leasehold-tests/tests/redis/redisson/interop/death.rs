//! Either side dies, or lives longer than its lease.

use leasehold::engine::Clock;
use leasehold_testkit::poll::until;

use super::{LEASE, listening, locker, of_kind, ours, redisson, since, until_waiting, waits};

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
        // A living client of ours takes the dead waiter out of a fair queue: Redisson alone waits for minutes.
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
