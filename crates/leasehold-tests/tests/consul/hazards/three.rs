//! Three servers: leaders that die, members that say nothing, a majority that is gone.

use super::*;

/// A leader that dies takes no lock with it, and fences go on growing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_is_survived() {
    let three = Three::start();
    let ours = patient(&three.url(), LONG).await;
    let other = patient(&three.url(), LONG).await;
    let guard = ours.mutex("l").lock().await.expect("free");
    let next = waiter(&other, "l");
    line(&other, "l", 1, 1).await;
    three.leader().kill();
    let (fence, deadline) = (guard.fence(), guard.deadline());
    until("renewed by another", async || {
        match guard.deadline() > deadline {
            true => Ok(()),
            false => Err(format!("{:?}", guard.state())),
        }
    })
    .await;
    is(&guard, GuardState::Valid).await;
    assert!(!next.is_finished(), "two holders");
    let released = soon("released", guard.release()).await;
    assert_eq!(released.expect("released"), Released::Released);
    assert!(granted(next).await.fence() > fence);
}

/// Without a majority no claim is let in, and the holder stops trusting its grant in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_gives_nothing_and_is_told() {
    let three = Three::start();
    let leads = three.leads();
    let ours = client(&three.members[leads].url()).await;
    let guard = ours.mutex("q").lock().await.expect("free");
    let others = (0..3).filter(|member| *member != leads);
    let others: Vec<_> = others.map(|member| &three.members[member]).collect();
    others.iter().for_each(|member| member.pause());
    let _ = soon("lost", guard.lost()).await;
    let refused = ours
        .mutex("r")
        .lock_within(Duration::from_millis(500))
        .await;
    assert!(!matches!(refused, Ok(Some(_))), "{refused:?}");
    others.iter().for_each(|member| member.resume());
    until("it works again", async || {
        match ours.mutex("q").lock_within(LEASE).await {
            Ok(Some(next)) if next.fence() > guard.fence() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// A client whose member says nothing goes on with another, and keeps what it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_leaves_a_member_that_says_nothing() {
    let three = Three::start();
    let ours = patient(&three.through_doors(), LONG).await;
    let other = patient(&three.members[0].url(), LONG).await;
    let guard = ours.mutex("m").lock().await.expect("free");
    // A client begins with the first.
    three.hide(0);
    let deadline = guard.deadline();
    until("renewed elsewhere", async || {
        match (guard.deadline() > deadline, guard.state()) {
            (true, GuardState::Valid) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    assert!(other.mutex("m").try_lock().await.expect("a try").is_none());
    let next = waiter(&other, "m");
    line(&other, "m", 1, 1).await;
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    drop(granted(next).await);
}

/// The holder's leader stands still and another takes over: the holder is told before the next gets the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_at_a_frozen_leader_is_told_before_another_is_let_in() {
    let three = Three::start();
    let leads = three.leads();
    let ours = client(&three.members[leads].url()).await;
    let other = patient(&three.members[(leads + 1) % 3].url(), LONG).await;
    let guard = ours.mutex("z").lock().await.expect("free");
    let next = waiter(&other, "z");
    line(&other, "z", 1, 1).await;
    three.members[leads].pause();
    let next = lost_before_granted(&guard, next).await;
    three.members[leads].resume();
    assert_eq!(guard.release().await.expect("a release"), Released::WasLost);
    is(&next, GuardState::Valid).await;
}
