//! Many claims of one client: heartbeats over a slow link, and releases while the engine is away.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::{Guard, GuardState, Mutex};
use leasehold_testkit::faulty::{Fault, Op};
use tokio::task::JoinSet;

use crate::world::{LEASE, World};

const RENEWED: Duration = Duration::from_secs(100);

/// A beat is given up after a third of the lease, before the link has carried all of it: the claims that it left out go
/// first the next time.
#[tokio::test(start_paused = true)]
async fn a_beat_that_is_cut_short_begins_with_other_claims_the_next_time() {
    let w = World::new().await;
    let mut held = Vec::new();
    for number in 0..100 {
        held.push(w.a.mutex(format!("name {number}")).lock().await.unwrap());
    }
    let each = LEASE / 200;
    w.plan.set(Op::Heartbeat, Fault::OneByOne(each));
    tokio::time::sleep(RENEWED).await;
    let lost = held.iter().filter(|guard| guard.check().is_err());
    assert_eq!(lost.count(), 0, "of 100 locks on a healthy engine");
}

/// Takes a name and gives it back, again and again.
async fn comes_and_goes(mutex: Mutex) {
    loop {
        let guard: Guard = mutex.lock().await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let _ = guard.release().await;
    }
}

/// The link is just fast enough for the longer lease.
#[tokio::test(start_paused = true)]
async fn no_lease_beside_it_costs_a_lock_its_time_to_be_renewed() {
    let short = Duration::from_secs(1);
    for tenths in 10..=30 {
        let w = World::new().await;
        let long = short * tenths / 10;
        let slow = long / 3 - Duration::from_millis(20);
        w.plan.set(Op::Heartbeat, Fault::DelayReply(slow));
        let held = w.a.mutex("x").lease(long).lock().await.unwrap();
        let mut tasks = JoinSet::new();
        for number in 0..3_u32 {
            let mutex = w.a.mutex(format!("short {number}")).lease(short);
            let _ = tasks.spawn(async move {
                tokio::time::sleep(Duration::from_millis(130) * number).await;
                comes_and_goes(mutex).await;
            });
        }
        tokio::time::sleep(RENEWED).await;
        assert_ne!(
            held.state(),
            GuardState::Lost,
            "{long:?} beside {short:?}, answers after {slow:?}"
        );
    }
}

/// Fifty tasks try a hundred milliseconds each, of a lease of an hour.
async fn tries(w: &World, fault: Fault, outage: Duration) {
    w.plan.set(Op::Claim, Fault::Hang);
    w.plan.set(Op::Release, fault);
    let mut tasks = JoinSet::new();
    for number in 0..50 {
        let mutex = w.a.mutex(format!("name {number}"));
        let mutex = mutex.lease(Duration::from_secs(3600));
        let _ = tasks.spawn(async move {
            loop {
                let within = Duration::from_millis(100);
                let _ = mutex.lock_within(within).await;
            }
        });
    }
    tokio::time::sleep(outage).await;
    tasks.shutdown().await;
}

/// Thirty thousand claims are left behind. Each is given back at once, then a bounded number in a second.
#[tokio::test(start_paused = true)]
async fn releases_that_fail_are_repeated_at_a_bounded_rate() {
    for fault in [Fault::Refuse, Fault::LoseReply] {
        let w = World::new().await;
        tries(&w, fault, Duration::from_secs(60)).await;
        let before = w.plan.calls(Op::Release);
        tokio::time::sleep(Duration::from_secs(60)).await;
        let calls = w.plan.calls(Op::Release) - before;
        assert!(calls <= 60 * 200, "{calls} calls in a minute");
        w.plan.heal();
        let start = w.clock.now();
        let shutdown = w.a.shutdown(LEASE).await.unwrap();
        assert_eq!(shutdown.abandoned, 0, "all given back");
        assert!(w.since(start) <= Duration::from_secs(2));
    }
}

/// An abandoned claim counts until it was given back.
#[tokio::test(start_paused = true)]
async fn a_client_has_an_end_of_claims_that_it_left_behind() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::Hang);
    w.plan.set(Op::Release, Fault::Hang);
    let mutex = w.a.mutex("x");
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        let polled = pin!(mutex.lock()).poll(&mut context);
        assert!(polled.is_pending());
    }
    let refused = mutex.lock().await.unwrap_err();
    assert!(refused.to_string().contains("100000 claims"), "{refused}");
    tokio::time::sleep(LEASE * 3).await;
    w.plan.heal();
    assert!(mutex.lock().await.is_ok(), "their leases have ended");
}
