//! Three members: leaders that die, members that are cut off.

use super::*;

/// A leader that dies takes no lock with it, and fences go on growing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_is_survived() {
    let cluster = Cluster::start();
    let ours = patient(&cluster.url(), LONG).await;
    let other = patient(&cluster.url(), LONG).await;
    let guard = ours.mutex("l").lock().await.expect("free");
    let next = waiter(&other, "l");
    line(&other, "l", 1, 1).await;
    cluster.leader().kill();
    let fence = guard.fence();
    is(&guard, GuardState::Valid).await;
    assert!(!next.is_finished(), "two holders");
    let released = soon("released", guard.release()).await;
    assert_eq!(released.expect("released"), Released::Released);
    let next = granted(next).await;
    assert!(next.fence() > fence, "a larger fence");
}

/// Without a majority no claim is granted, and the holder stops trusting its grant in time, also when it talks to a
/// leader that does not know yet that no member follows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_gives_nothing_and_is_told() {
    let cluster = Cluster::start();
    let leader = cluster.leader().port();
    let ours = client(&cluster.leader().url()).await;
    let guard = ours.mutex("q").lock().await.expect("free");
    let (clock, before) = (Clock::boot(), Clock::boot().now());
    let members = cluster.members.iter();
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
    let cluster = Cluster::behind_proxies();
    let (ours, other) = (
        patient(&cluster.url(), lease).await,
        patient(&cluster.members[0].url(), lease).await,
    );
    let guard = ours.mutex("m").lock().await.expect("free");
    let passed = || cluster.doors.iter().map(|door| door.passed(Way::ToClient));
    let before: Vec<_> = passed().collect();
    drop(ours.mutex("n").lock().await.expect("free"));
    let at = passed()
        .zip(&before)
        .position(|(now, before)| now > *before);
    let at = at.expect("it came through a door");
    cluster.doors[at].set_both(fate);
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
    let cluster = Cluster::behind_proxies();
    for leads in [false, true] {
        let leader = cluster.leads();
        let cut = if leads { leader } else { (leader + 1) % 3 };
        let rest: Vec<_> = (0..3).filter(|member| *member != cut).collect();
        let ours = client(&cluster.url_of(&[cut])).await;
        let other = patient(&cluster.url_of(&rest), LONG).await;
        let guard = ours.mutex("c").lock().await.expect("free");
        let next = waiter(&other, "c");
        line(&other, "c", 1, 1).await;
        cluster.isolate(cut);
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
        cluster.heal(cut);
        until("the member is back", async || {
            match ours.mutex("c").lock_within(LEASE).await {
                Ok(Some(_)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }
}

/// A claim is asked of a member that stands still; the client goes on at another one, takes the lock there and gives it
/// back. The first request, once its member wakes up, must not take the lock again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_given_up_takes_no_lock_later() {
    let cluster = Cluster::start();
    let leads = cluster.leads();
    let frozen = (leads + 1) % 3;
    let lease = LONG * 3;
    let other = patient(&cluster.url_of(&[leads]), lease).await;
    for round in 0..6 {
        let name = format!("ghost-{round}");
        // A client that is at the member which is going to stand still.
        let ours = until("a client at that member", async || {
            let url = cluster.url_of(&[frozen, leads]);
            let client = patient(&url, lease).await;
            cluster.members[frozen].pause();
            let tried = tokio::time::timeout(LEASE / 4, client.mutex("where").try_lock()).await;
            match tried {
                Err(_) => Ok(client),
                Ok(_) => {
                    cluster.members[frozen].resume();
                    cluster.members[frozen].ready();
                    Err("at the other one".to_owned())
                }
            }
        })
        .await;
        let guard = soon("locked", ours.mutex(&name).lock()).await;
        let guard = guard.expect("locked at another member");
        let released = guard.release().await.expect("released");
        assert_eq!(released, Released::Released);
        cluster.members[frozen].resume();
        cluster.members[frozen].ready();
        for name in [&*name, "where"] {
            line(&other, name, 0, 0).await;
            let free = soon("free", other.mutex(name).lock()).await;
            let free = free.expect("free").release().await;
            assert_eq!(free.expect("released"), Released::Released);
        }
        let left = cluster.members[leads].keys("locks/");
        let left: Vec<_> = left
            .iter()
            .filter(|key| !key.contains("%sessions"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
