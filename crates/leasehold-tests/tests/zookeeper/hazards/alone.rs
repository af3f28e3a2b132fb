//! A claim that sees by its number that it is alone, and lists nothing: what must not be mistaken for that.

use super::*;

/// kazoo makes parents that stay, so the server does not clear them away in the middle of a test.
fn kazoo(server: &ZooKeeper) -> Process {
    let kazoo = Process::start(python("kazoo").args([&server.address(), "10"]));
    assert_eq!(kazoo.hear(), "ready");
    kazoo
}

/// Makes a node below the name's, and deletes it again, so many times.
fn pass(kazoo: &mut Process, name: &str, times: u32) {
    for _ in 0..times {
        assert_eq!(kazoo.ask(&format!("lock /locks/{name}")), "held");
        assert_eq!(kazoo.ask(&format!("release /locks/{name}")), "released");
    }
}

/// Locks and releases: from the third time on nothing is listed.
async fn cycles(client: &Client, name: &str, times: u32) {
    for _ in 0..times {
        let guard = soon("free", client.mutex(name).lock()).await;
        let released = guard.expect("locked").release().await;
        assert_eq!(released.expect("released"), Released::Released);
    }
}

/// A try finds somebody else there.
async fn busy(client: &Client, name: &str) {
    until("an answer", async || {
        match client.mutex(name).try_lock().await {
            Ok(None) => Ok(()),
            Ok(Some(_)) => panic!("two holders of {name}"),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
}

/// Two writes and nothing else, while nobody else comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_requests_are_enough_for_who_is_alone() {
    let server = ZooKeeper::start();
    let (ours, mut kazoo) = (client(&server.url()).await, kazoo(&server));
    pass(&mut kazoo, "two", 1);
    cycles(&ours, "two", 2).await;
    // A busy machine keeps some guards for so long that they ask for others.
    until("two requests each", async || {
        let before = server.received();
        cycles(&ours, "two", 20).await;
        match server.received() - before {
            requests if requests < 45 => Ok(()),
            requests => Err(format!("{requests} requests for 20 cycles")),
        }
    })
    .await;
}

/// More names than are remembered, one after the other: neither watches nor anything else piles up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_were_used_are_forgotten() {
    const NAMES: usize = 100;
    let server = ZooKeeper::start();
    let (ours, mut kazoo) = (patient(&server.url(), LONG).await, kazoo(&server));
    for name in (0..NAMES).map(|name| format!("many-{name}")) {
        pass(&mut kazoo, &name, 1);
        cycles(&ours, &name, 3).await;
    }
    until("few are watched", async || match server.watches() {
        watches if watches <= 64 => Ok(()),
        watches => Err(format!("{watches} watches")),
    })
    .await;
}

/// Whoever came between two claims of ours is seen, and so is that it left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newcomer_between_two_claims_is_seen() {
    let server = ZooKeeper::start();
    let (ours, other) = (client(&server.url()).await, client(&server.url()).await);
    let mut kazoo = kazoo(&server);
    pass(&mut kazoo, "n", 1);
    cycles(&ours, "n", 3).await;
    assert_eq!(kazoo.ask("lock /locks/n"), "held");
    busy(&ours, "n").await;
    assert_eq!(kazoo.ask("release /locks/n"), "released");
    cycles(&ours, "n", 3).await;
    let held = other.mutex("n").lock().await.expect("free");
    busy(&ours, "n").await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
    cycles(&ours, "n", 3).await;
    pass(&mut kazoo, "n", 1);
    cycles(&ours, "n", 3).await;
}

/// The name's node is deleted and made again, and others have made as many nodes below it as there were: the next
/// number is the one that would prove that we are alone. So it is when that happens while our connection is down, and
/// when our session ends meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_made_again_that_counts_the_same_is_another() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    let mut kazoo = kazoo(&server);
    for (name, cut, over) in [
        ("up", false, false),
        ("down", true, false),
        ("over", true, true),
    ] {
        pass(&mut kazoo, name, 1);
        cycles(&ours, name, 3).await;
        let held = ours.mutex("held").lock().await.expect("free");
        if cut {
            proxy.set_both(Fate::Reset);
            proxy.reset();
        }
        if over {
            line(&direct, "held", 0, 0).await;
        }
        assert_eq!(kazoo.ask(&format!("delete /locks/{name}")), "deleted");
        pass(&mut kazoo, name, 3);
        assert_eq!(kazoo.ask(&format!("lock /locks/{name}")), "held");
        proxy.set_both(Fate::Pass);
        until("connected", async || {
            let locked = ours.mutex("elsewhere").lock().await;
            locked.map(drop).map_err(|error| error.to_string())
        })
        .await;
        busy(&ours, name).await;
        assert_eq!(kazoo.ask(&format!("release /locks/{name}")), "released");
        drop(held);
        cycles(&ours, name, 3).await;
    }
}

/// The answer to the one request is lost, and somebody comes before the connection is back, or nobody does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_the_one_request_is_settled() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    let mut kazoo = kazoo(&server);
    pass(&mut kazoo, "lost", 1);
    for newcomer in [false, true, false] {
        cycles(&ours, "lost", 3).await;
        proxy.set(Way::ToClient, Fate::Hold);
        let locking = waiter(&ours, "lost");
        line(&direct, "lost", 1, 0).await;
        let next = newcomer.then(|| waiter(&direct, "lost"));
        line(&direct, "lost", 1, usize::from(newcomer)).await;
        proxy.reset();
        proxy.set_both(Fate::Pass);
        let guard = granted(locking).await;
        line(&direct, "lost", 1, usize::from(newcomer)).await;
        busy(&direct, "lost").await;
        assert_eq!(guard.release().await.expect("released"), Released::Released);
        if let Some(next) = next {
            drop(granted(next).await);
        }
        line(&direct, "lost", 0, 0).await;
    }
}

/// Who holds without having listed anything hears all the same that somebody else has come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_listed_nothing_hears_of_newcomers() {
    let server = ZooKeeper::start();
    let (ours, other) = (client(&server.url()).await, client(&server.url()).await);
    let mut kazoo = kazoo(&server);
    pass(&mut kazoo, "h", 1);
    cycles(&ours, "h", 3).await;
    let lingering = ours.mutex("h").linger(PATIENCE * 10);
    drop(lingering.lock().await.expect("free"));
    line(&other, "h", 1, 0).await;
    let next = soon("given up", other.mutex("h").lock()).await;
    drop(next.expect("granted"));
}

/// Calls of somebody who is alone do their work themselves. One that is given up while its answer is held back, and whose
/// connection is then lost, is taken to its end all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_given_up_leaves_nothing() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let url = format!("zookeeper://127.0.0.1:{}", proxy.port);
    let (direct, ours) = (client(&server.url()).await, patient(&url, LONG).await);
    let mut kazoo = kazoo(&server);
    pass(&mut kazoo, "left", 1);
    for releases in [false, true] {
        for way in [Way::ToServer, Way::ToClient] {
            cycles(&ours, "left", 3).await;
            let mutex = ours.mutex("left");
            let held = match releases {
                true => Some(mutex.lock().await.expect("free")),
                false => None,
            };
            proxy.set(way, Fate::Hold);
            let call = async {
                match held {
                    Some(guard) => drop(guard.release().await),
                    None => drop(mutex.lock().await),
                }
            };
            let done = tokio::time::timeout(Duration::from_millis(50), call).await;
            assert!(done.is_err(), "answered although nothing passes {way:?}");
            proxy.set(way, Fate::Pass);
            proxy.reset();
            // Long before the session would end.
            let soon = tokio::time::timeout(LONG / 4, line(&direct, "left", 0, 0)).await;
            soon.unwrap_or_else(|_| panic!("left behind: releases {releases}, {way:?}"));
        }
    }
}

/// Who is alone is told nothing of others at first. Soon it is: what only lingers is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_rests_hears_soon_of_others() {
    let server = ZooKeeper::start();
    let (ours, other) = (
        patient(&server.url(), LONG).await,
        patient(&server.url(), LONG).await,
    );
    let mut kazoo = kazoo(&server);
    pass(&mut kazoo, "rest", 1);
    cycles(&ours, "rest", 3).await;
    let lingering = ours.mutex("rest").linger(LONG * 2);
    drop(lingering.lock().await.expect("free"));
    // A heartbeat would tell it as well, after a third of the lease.
    let next = tokio::time::timeout(LONG / 5, other.mutex("rest").lock()).await;
    drop(next.expect("told before a heartbeat").expect("granted"));
}
