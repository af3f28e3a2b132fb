//! What is lost on the way.

use super::*;

/// Whatever answer is lost on the way to a grant, there is one node, and it is ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_create_is_settled() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    // The name is new: its parents, then its node, are made in several messages, and each of them is lost once.
    for lost in 0..8 {
        let name = format!("lost-{lost}");
        proxy.after(Way::ToClient, lost, Fate::Reset);
        let guard = soon("locked", ours.mutex(&name).lock()).await;
        let guard = guard.expect("locked");
        line(&direct, &name, 1, 0).await;
        let tried = direct.mutex(&name).try_lock().await.expect("a try");
        assert!(tried.is_none(), "two holders");
        let next = waiter(&direct, &name);
        line(&direct, &name, 1, 1).await;
        let fence = guard.fence();
        assert_eq!(guard.release().await.expect("released"), Released::Released);
        let next = granted(next).await;
        assert!(next.fence() > fence);
        drop(next);
        line(&direct, &name, 0, 0).await;
    }
}

/// Several permits are all or none, whichever answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_all_or_none_whatever_is_lost() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for lost in 0..10 {
        let name = format!("permits-{lost}");
        proxy.after(Way::ToClient, lost, Fate::Reset);
        let two = soon("two", ours.semaphore(&name, 3).acquire_many(2)).await;
        let two = two.expect("two permits");
        let semaphore = direct.semaphore(&name, 3);
        let more = semaphore.try_acquire_many(2).await.expect("a try");
        assert!(more.is_none(), "four of three");
        let one = semaphore.acquire().await.expect("one is left");
        assert!(semaphore.try_acquire().await.expect("a try").is_none());
        assert_eq!(two.release().await.expect("released"), Released::Released);
        drop(one);
        let three = soon("three", semaphore.acquire_many(3)).await;
        drop(three.expect("nothing was left behind"));
        line(&direct, &name, 0, 0).await;
    }
}

/// Nothing but the answer to the release is lost: it was released, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_delete_is_settled() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for _ in 0..3 {
        let guard = soon("locked", ours.mutex("x").lock()).await;
        proxy.after(Way::ToClient, 0, Fate::Reset);
        let released = guard.expect("locked").release().await;
        assert_eq!(released.expect("released"), Released::Released);
        line(&direct, "x", 0, 0).await;
    }
}

/// A writer whose change to a reader got no answer is a reader, in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_downgrade_is_settled() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for lost in 0..3 {
        let writer = soon("locked", ours.rwlock("d").write()).await;
        let writer = writer.expect("locked");
        let fence = writer.fence();
        proxy.after(Way::ToClient, lost, Fate::Reset);
        let reader = writer.downgrade().await.expect("downgraded");
        assert_eq!(reader.fence(), fence);
        let other = direct.rwlock("d");
        assert!(other.try_write().await.expect("a try").is_none());
        drop(other.try_read().await.expect("a try").expect("shared"));
        proxy.set_both(Fate::Pass);
        let released = soon("released", reader.release()).await;
        assert_eq!(released.expect("released"), Released::Released);
        line(&direct, "d", 0, 0).await;
    }
}

/// The news that the predecessor is gone is lost with the connection, or it arrives and the answer to the look that
/// follows is lost: the waiter finds out all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_watch_event_is_made_up_for() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for lost in 0..4 {
        let held = soon("free", direct.mutex("e").lock()).await.expect("free");
        let next = waiter(&ours, "e");
        line(&direct, "e", 1, 1).await;
        proxy.after(Way::ToClient, lost, Fate::Reset);
        assert_eq!(held.release().await.expect("released"), Released::Released);
        drop(granted(next).await);
        proxy.set_both(Fate::Pass);
        line(&direct, "e", 0, 0).await;
    }
}

/// Whoever stops waiting for an answer that is still on its way leaves no node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_dropped_while_the_create_is_in_flight_leaves_no_node() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for (round, way) in [Way::ToServer, Way::ToClient].into_iter().enumerate() {
        let name = format!("flight-{round}");
        // The session is there, and the parents are: what is in flight is the node itself.
        drop(ours.mutex("before").lock().await.expect("free"));
        let other = direct.mutex(&name).lock().await.expect("free");
        proxy.set(way, Fate::Hold);
        let sent = (proxy.passed(Way::ToServer), server.received());
        let locking = ours.mutex(&name);
        let dropped = tokio::time::timeout(LEASE / 10, locking.lock()).await;
        assert!(dropped.is_err(), "nothing was answered");
        if way == Way::ToClient {
            assert!(sent < (proxy.passed(Way::ToServer), server.received()));
            line(&direct, &name, 1, 1).await;
        }
        proxy.set(way, Fate::Pass);
        line(&direct, &name, 1, 0).await;
        drop(other);
        let again = soon("free", ours.mutex(&name).lock()).await;
        drop(again.expect("locked"));
        line(&direct, &name, 0, 0).await;
    }
}
