//! The session under lost, late and repeated calls, in simulated time: the real keeper, turns and guards over the
//! memory engine with a plan of faults.

use std::time::Duration;

use leasehold::engine::Event;
use leasehold::engine::Step;
use leasehold::{ErrorKind, GuardState, Released};
use leasehold_testkit::faulty::{Fault, Op};

use crate::world::{LEASE, World};

#[tokio::test(start_paused = true)]
async fn a_loss_is_told_before_the_engine_lets_another_in() {
    for fault in [
        Fault::Hang,
        Fault::HangReply,
        Fault::Refuse,
        Fault::LoseReply,
    ] {
        let w = World::new().await;
        let guard = w.a.mutex("x").lock().await.unwrap();
        w.plan.set(Op::Heartbeat, fault);
        // The release of what is lost must not be what frees it.
        w.plan.set(Op::Release, Fault::Hang);
        let start = w.clock.now();
        let (lost, granted) = tokio::join!(
            async {
                let why = guard.lost().await;
                assert_eq!(why.kind(), ErrorKind::Lost);
                w.since(start)
            },
            async {
                let other = w.b.mutex("x").lock().await.unwrap();
                assert!(other.fence() > guard.fence());
                w.since(start)
            }
        );
        assert!(
            lost < granted,
            "{fault:?}: told after {lost:?}, given away after {granted:?}"
        );
        assert_eq!(guard.state(), GuardState::Lost);
        assert_eq!(guard.release().await.unwrap(), Released::WasLost);
    }
}

#[tokio::test(start_paused = true)]
async fn failing_renewals_are_unsure_and_a_good_one_heals() {
    let w = World::new().await;
    let guard = w.a.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Heartbeat, Fault::Refuse);
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(guard.state(), GuardState::Unsure);
    assert!(guard.check().is_ok(), "unsure is not lost");
    w.plan.heal();
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(guard.state(), GuardState::Valid);
    tokio::time::sleep(LEASE * 10).await;
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn validity_counts_from_before_sending() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE * 8 / 10));
    let guard = w.a.mutex("x").lock().await.unwrap();
    assert!(
        guard.remaining() < LEASE * 2 / 10,
        "{:?} left",
        guard.remaining()
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_lease_is_no_grant() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE * 2));
    let error = w.a.mutex("x").lock().await.unwrap_err();
    assert_eq!(
        (error.kind(), error.step()),
        (ErrorKind::TimedOut, Step::Claim)
    );
    assert!(error.may_have_happened());
    w.plan.heal();
    drop(w.b.mutex("x").lock().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_suspend_is_a_loss_that_is_never_taken_back() {
    let w = World::new().await;
    let guard = w.a.mutex("x").lock().await.unwrap();
    let signal = guard.loss_signal();
    w.clock.skip(LEASE * 2);
    // No task has run since: the guard's own clock says it.
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert!(guard.remaining().is_zero());
    tokio::time::sleep(LEASE * 3).await;
    assert_eq!(guard.state(), GuardState::Lost);
    assert!(signal.is_lost());
    assert_eq!(guard.release().await.unwrap(), Released::WasLost);
    drop(w.b.mutex("x").lock().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_nothing_behind() {
    let w = World::new().await;
    w.plan.set(Op::Claim, Fault::LoseReply);
    let error = w.a.mutex("x").lock().await.unwrap_err();
    assert!(error.may_have_happened(), "{error}");
    let start = w.clock.now();
    drop(w.b.mutex("x").lock().await.unwrap());
    assert!(
        w.since(start) < LEASE / 10,
        "freed by the lease, not by the reaper: {:?}",
        w.since(start)
    );
    w.plan.heal();
    let guard = w.a.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Release, Fault::LoseReply);
    let error = guard.release().await.unwrap_err();
    assert_eq!(
        (error.step(), error.may_have_happened()),
        (Step::Release, true)
    );
    w.plan.heal();
    drop(w.b.mutex("x").lock().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_refused_release_is_tried_again_in_the_background() {
    let w = World::new().await;
    let guard = w.a.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Release, Fault::Refuse);
    assert!(!guard.release().await.unwrap_err().may_have_happened());
    assert!(w.b.mutex("x").try_lock().await.unwrap().is_none());
    w.plan.heal();
    let start = w.clock.now();
    drop(w.b.mutex("x").lock().await.unwrap());
    assert!(w.since(start) < LEASE / 2, "{:?}", w.since(start));
}

#[tokio::test(start_paused = true)]
async fn lost_pushes_cost_one_heartbeat() {
    let w = World::new().await;
    w.plan.set(Op::Event, Fault::Hang);
    let held = w.b.mutex("x").lock().await.unwrap();
    let wait = w.a.mutex("x");
    let (granted, start) = tokio::join!(wait.lock(), async {
        tokio::time::sleep(LEASE * 2).await;
        assert_eq!(held.release().await.unwrap(), Released::Released);
        w.clock.now()
    });
    assert!(granted.is_ok());
    assert!(w.since(start) <= LEASE / 2, "{:?}", w.since(start));
}

#[tokio::test(start_paused = true)]
async fn repeated_calls_and_events_change_nothing() {
    let w = World::new().await;
    for op in [Op::Claim, Op::Heartbeat, Op::Event] {
        w.plan.set(op, Fault::Repeat);
    }
    for _ in 0..10 {
        let held = w.b.mutex("x").lock().await.unwrap();
        let wait = w.a.mutex("x");
        let (granted, released) = tokio::join!(wait.lock(), async {
            tokio::time::sleep(LEASE).await;
            held.release().await
        });
        assert_eq!(released.unwrap(), Released::Released);
        assert_eq!(
            granted.unwrap().release().await.unwrap(),
            Released::Released
        );
    }
    assert!(w.idle().await);
}

#[tokio::test(start_paused = true)]
async fn a_grant_may_overtake_its_reply() {
    let w = World::new().await;
    let held = w.b.mutex("x").lock().await.unwrap();
    // The claim joins the line at once; its answer "waiting" comes after the grant.
    w.plan.set(Op::Claim, Fault::DelayReply(LEASE / 4));
    let wait = w.a.mutex("x");
    let (granted, released) = tokio::join!(wait.lock(), async {
        tokio::time::sleep(LEASE / 8).await;
        held.release().await
    });
    assert_eq!(released.unwrap(), Released::Released);
    let guard = granted.unwrap();
    assert!(
        guard.remaining() < LEASE * 3 / 4,
        "counted from the claim: {:?}",
        guard.remaining()
    );
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn an_old_answer_does_not_end_a_new_grant() {
    let w = World::new().await;
    let held = w.b.mutex("x").lock().await.unwrap();
    // A heartbeat of the waiting claim is answered "waiting"; before that answer arrives the grant is pushed.
    w.plan.set(Op::Heartbeat, Fault::DelayReply(LEASE / 4));
    let wait = w.a.mutex("x");
    let (granted, released) = tokio::join!(wait.lock(), async {
        tokio::time::sleep(LEASE / 3 + LEASE / 8).await;
        assert_eq!(w.plan.calls(Op::Heartbeat), 1, "the answer is on its way");
        held.release().await
    });
    assert_eq!(released.unwrap(), Released::Released);
    let guard = granted.unwrap();
    tokio::time::sleep(LEASE * 3).await;
    assert_eq!(guard.state(), GuardState::Valid);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
}

/// Waits for the name with this fault on its beats, until its own lease is over and the holder leaves; then it joins again
/// and is refused.
async fn refused_at_the_second_place(w: &World, beats: Fault) -> leasehold::Error {
    let held = w.b.mutex("x").lock().await.unwrap();
    w.plan.set(Op::Heartbeat, beats);
    // The claim that is left behind is not to be freed by its release.
    w.plan.set(Op::Release, Fault::Hang);
    let wait = w.a.mutex("x");
    let (refused, released) = tokio::join!(wait.lock(), async {
        tokio::time::sleep(LEASE / 2).await;
        w.plan.set(Op::Claim, Fault::Refuse);
        tokio::time::sleep(LEASE).await;
        held.release().await
    });
    assert_eq!(released.unwrap(), Released::Released);
    refused.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_grant_told_too_late_may_have_happened() {
    let w = World::new().await;
    let error = refused_at_the_second_place(&w, Fault::LoseReply).await;
    assert!(w.b.mutex("x").try_lock().await.unwrap().is_none());
    assert!(error.may_have_happened(), "{error}");
    // The engine ended its place, and told: nothing can be left of it.
    let w = World::new().await;
    let error = refused_at_the_second_place(&w, Fault::Hang).await;
    assert!(w.idle().await);
    assert!(!error.may_have_happened(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_eviction_without_an_event_is_told_by_the_next_heartbeat() {
    let w = World::new().await;
    w.plan.set(Op::Event, Fault::Hang);
    let guard = w.a.mutex("x").lock().await.unwrap();
    let start = w.clock.now();
    assert_eq!(w.b.evict("x", "a test").await.unwrap(), 1);
    let why = guard.lost().await;
    assert_eq!(why.kind(), ErrorKind::Lost);
    assert!(w.since(start) <= LEASE / 2, "{:?}", w.since(start));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_ends_loses_everything() {
    let w = World::new().await;
    let guard = w.a.mutex("x").lock().await.unwrap();
    let held = w.b.mutex("y").lock().await.unwrap();
    let wait = w.a.mutex("y");
    let (waiting, ()) = tokio::join!(wait.lock(), async {
        tokio::time::sleep(LEASE / 10).await;
        w.plan.tell(&Event::Down("the server forgot us".into()));
    });
    assert!(guard.check().unwrap_err().to_string().contains("forgot us"));
    let error = waiting.unwrap_err();
    assert_eq!(
        (error.kind(), error.step()),
        (ErrorKind::Unavailable, Step::Wait)
    );
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn unsure_is_told_and_answered_by_a_heartbeat() {
    let w = World::new().await;
    let guard = w.a.mutex("x").lock().await.unwrap();
    w.plan.tell(&Event::Unsure);
    assert_eq!(guard.state(), GuardState::Unsure);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(
        guard.state(),
        GuardState::Valid,
        "a heartbeat went out at once"
    );
}

#[tokio::test(start_paused = true)]
async fn one_heartbeat_for_all_and_none_for_nothing() {
    let w = World::new().await;
    tokio::time::sleep(LEASE * 100).await;
    assert_eq!(w.plan.calls(Op::Heartbeat), 0, "nothing is held");
    let mut guards = Vec::new();
    for number in 0..1000 {
        guards.push(w.a.mutex(format!("held:{number}")).lock().await.unwrap());
        tokio::time::sleep(LEASE / 3000).await;
    }
    let before = (w.plan.calls(Op::Heartbeat), w.plan.claims_beaten());
    tokio::time::sleep(LEASE * 10).await;
    let calls = w.plan.calls(Op::Heartbeat) - before.0;
    let claims = w.plan.claims_beaten() - before.1;
    assert!(guards.iter().all(|guard| guard.check().is_ok()));
    assert!(calls <= 10 * 3 * 8, "{calls} calls in ten leases");
    assert!(
        (20_000..=60_000).contains(&claims),
        "{claims} renewals of 1000 claims in ten leases"
    );
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_was_blocked_finds_itself_lost() {
    let w = World::new().await;
    let clock = w.clock.clone();
    let run =
        w.a.mutex("x")
            .run(async move |_| clock.skip(LEASE * 2))
            .await;
    assert_eq!(run.unwrap_err().error.kind(), ErrorKind::Lost);
}

#[test]
fn a_task_that_waits_for_itself_is_warned_with_both_places() {
    let log = leasehold_testkit::log::Log::default();
    log.during(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let client = leasehold::connect("memory:").await.unwrap();
            let _held = client.mutex("x").lock().await.unwrap();
            let soon = Duration::from_millis(1);
            assert!(client.mutex("x").lock_within(soon).await.unwrap().is_none());
        });
    });
    let text = log.text();
    assert!(text.contains("waits for a name it holds itself"), "{text}");
    assert_eq!(
        text.matches("session.rs:").count(),
        2,
        "both places: {text}"
    );
}

#[tokio::test(start_paused = true)]
async fn several_names_are_given_back_side_by_side() {
    let world = World::new().await;
    let guard = world.a.multi(["x", "y", "z"]).lock().await.expect("free");
    let late = Duration::from_secs(2);
    world.plan.set(Op::Release, Fault::Delay(late));
    let start = world.clock.now();
    let released = guard.release().await.expect("released");
    assert_eq!(released, Released::Released);
    assert_eq!(world.since(start), late, "no name waits for another");
    assert!(world.idle().await);
}

/// Every heartbeat speaks of all claims of a client.
#[tokio::test]
async fn a_client_has_an_end_of_claims() {
    let client = leasehold::connect("memory:").await.unwrap();
    let mut held = Vec::new();
    for number in 0..100_000 {
        let mutex = client.mutex(format!("name {number}"));
        held.push(mutex.lock().await.unwrap());
    }
    let refused = client.mutex("one more").lock().await.unwrap_err();
    assert!(refused.to_string().contains("100000 claims"), "{refused}");
    assert!(!refused.may_have_happened(), "{refused}");
    let one = held.pop().unwrap();
    let _ = one.release().await.unwrap();
    let _one_more = client.mutex("one more").lock().await.unwrap();
}
