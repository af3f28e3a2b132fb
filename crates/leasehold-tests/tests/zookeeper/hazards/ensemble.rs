//! Three servers: leaders that die, members that are cut off.

use super::*;

/// A leader that dies takes no lock with it, and fences go on growing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_is_survived() {
    let ensemble = Ensemble::start();
    let ours = patient(&ensemble.url(), LONG).await;
    let other = patient(&ensemble.url(), LONG).await;
    let guard = ours.mutex("l").lock().await.expect("free");
    let next = waiter(&other, "l");
    line(&other, "l", 1, 1).await;
    ensemble.leader().kill();
    let fence = guard.fence();
    is(&guard, GuardState::Valid).await;
    assert!(!next.is_finished(), "two holders");
    let released = soon("released", guard.release()).await;
    assert_eq!(released.expect("released"), Released::Released);
    let next = granted(next).await;
    assert!(next.fence() > fence, "another epoch, a larger fence");
}

/// Without a majority no claim is granted, and the holder stops trusting its grant in time, also when it talks to a
/// leader that does not know yet that it has no followers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_gives_nothing_and_is_told() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader().port();
    let ours = client(&ensemble.leader().url()).await;
    let guard = ours.mutex("q").lock().await.expect("free");
    let (clock, before) = (Clock::boot(), Clock::boot().now());
    let members = ensemble.members.iter();
    let others: Vec<_> = members.filter(|member| member.port() != leader).collect();
    others.iter().for_each(|member| member.pause());
    let _ = soon("lost", guard.lost()).await;
    let took = Duration::from_micros(clock.now() - before);
    assert!(took <= LEASE * 5 / 4, "told after {took:?}");
    others.iter().for_each(|member| member.resume());
    until("it works again", async || {
        match ours.mutex("q").lock_within(LEASE).await {
            Ok(Some(next)) if next.fence() > guard.fence() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// A client that is cut off from its member goes on with another, and keeps what it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_moves_to_another_member() {
    moves(LONG, Fate::Reset).await;
}

/// So does one whose member no longer says anything, before its lease is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_leaves_a_member_that_says_nothing() {
    moves(LONG / 2, Fate::Hold).await;
}

async fn moves(lease: Duration, fate: Fate) {
    let ensemble = Ensemble::behind_proxies();
    let (ours, other) = (
        patient(&ensemble.url(), lease).await,
        patient(&ensemble.members[0].url(), lease).await,
    );
    let guard = ours.mutex("m").lock().await.expect("free");
    let passed = || ensemble.doors.iter().map(|door| door.passed(Way::ToClient));
    let before: Vec<_> = passed().collect();
    drop(ours.mutex("n").lock().await.expect("free"));
    let at = passed()
        .zip(&before)
        .position(|(now, before)| now > *before);
    let at = at.expect("it came through a door");
    ensemble.doors[at].set_both(fate);
    let (before, deadline): (Vec<_>, _) = (passed().collect(), guard.deadline());
    until("renewed elsewhere", async || {
        let moved = passed().zip(&before).enumerate();
        let moved = moved.filter(|(door, (now, before))| *door != at && now > before);
        match (moved.count(), guard.deadline() > deadline, guard.state()) {
            (1.., true, GuardState::Valid) => Ok(()),
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

/// The holder's member hears nothing of the others any more, first as a follower and then as their leader: the holder
/// says that its lock is lost before the majority gives it to another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_at_a_minority_member_is_told_before_the_majority_lets_another_in() {
    let ensemble = Ensemble::behind_proxies();
    for leads in [false, true] {
        let leader = ensemble.leads();
        let cut = if leads { leader } else { (leader + 1) % 3 };
        let rest: Vec<_> = (0..3).filter(|member| *member != cut).collect();
        let ours = client(&ensemble.url_of(&[cut])).await;
        let other = patient(&ensemble.url_of(&rest), LONG).await;
        let guard = ours.mutex("c").lock().await.expect("free");
        let next = waiter(&other, "c");
        line(&other, "c", 1, 1).await;
        ensemble.isolate(cut);
        let lost = async {
            let _ = guard.lost().await;
            Clock::boot().now()
        };
        let passed_on = async {
            let next = next.await.expect("no panic").expect("granted");
            (Clock::boot().now(), next)
        };
        let (lost, (at, next)) = soon("both", async { tokio::join!(lost, passed_on) }).await;
        assert!(lost < at, "leads: {leads}: told {} µs late", lost - at);
        assert!(next.fence() > guard.fence());
        assert_eq!(guard.release().await.expect("a release"), Released::WasLost);
        drop(next);
        ensemble.heal(cut);
        until("the member is back", async || {
            match ours.mutex("c").lock_within(LEASE).await {
                Ok(Some(_)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}
