//! Answers that are lost on the way.

use super::*;

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

/// A call that is dropped while its answer is still on its way leaves no node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_dropped_while_the_create_is_in_flight_leaves_no_node() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for (round, way) in [Way::ToServer, Way::ToClient].into_iter().enumerate() {
        let name = format!("flight-{round}");
        // The session is there, and the parents are: the request in flight makes the node itself.
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

/// A call that is given up while its answer is held back, and whose connection is then lost, is taken to its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_given_up_leaves_nothing() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let url = format!("zookeeper://127.0.0.1:{}", proxy.port);
    let (direct, ours) = (client(&server.url()).await, patient(&url, LONG).await);
    for releases in [false, true] {
        for way in [Way::ToServer, Way::ToClient] {
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
