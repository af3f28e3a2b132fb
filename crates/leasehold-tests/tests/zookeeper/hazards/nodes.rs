//! Faults of the nodes themselves.

use super::*;
use leasehold::ErrorKind;

/// A server that dies and comes back within the session's time loses no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_held_locks() {
    let server = ZooKeeper::start();
    let ours = patient(&server.url(), LONG).await;
    let guard = ours.mutex("k").lock().await.expect("free");
    let fence = guard.fence();
    server.kill();
    server.restart();
    server.ready();
    is(&guard, GuardState::Valid).await;
    let other = client(&server.url()).await;
    assert!(other.mutex("k").try_lock().await.expect("a try").is_none());
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    let next = soon("free", other.mutex("k").lock()).await;
    assert!(next.expect("granted").fence() > fence);
}

/// Another program deletes the name's node with everything below: the holder is told, and the name can be locked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_deleted_underneath_is_made_again() {
    let server = ZooKeeper::start();
    let (ours, other) = (client(&server.url()).await, client(&server.url()).await);
    let mut kazoo = Process::start(python("kazoo").args([&server.address(), "3"]));
    assert_eq!(kazoo.hear(), "ready");
    for _ in 0..3 {
        let held = soon("free", ours.mutex("d").lock()).await.expect("free");
        let next = waiter(&other, "d");
        line(&other, "d", 1, 1).await;
        assert_eq!(kazoo.ask("delete /locks/d"), "deleted");
        let _ = soon("told", held.lost()).await;
        // Deleted one by one: the second may have held in between, and is told as well.
        drop(soon("granted", next).await.expect("no panic"));
        let next = soon("free", other.mutex("d").lock()).await;
        let next = next.expect("granted");
        line(&other, "d", 1, 0).await;
        assert!(next.fence() > held.fence());
        assert_eq!(held.release().await.expect("a release"), Released::WasLost);
        assert_eq!(next.state(), GuardState::Valid);
        assert_eq!(next.release().await.expect("released"), Released::Released);
    }
}

/// A thousand wait, each watches one node, and a release wakes one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_are_no_herd() {
    const CLIENTS: usize = 10;
    let server = ZooKeeper::start();
    let ours = patient(&server.url(), LONG).await;
    let held = ours.mutex("h").strict().lock().await.expect("free");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..CLIENTS {
        let client = patient(&server.url(), LONG).await;
        for _ in 0..1000 / CLIENTS {
            let (mutex, tell) = (client.mutex("h").strict(), tell.clone());
            drop(tokio::spawn(async move {
                let guard = mutex.lock().await.expect("granted");
                tell.send(guard).expect("heard");
            }));
        }
    }
    line(&ours, "h", 1, 1000).await;
    // One each, and one per session that tells its holder, should it have one, that others have come.
    until("each watches one", async || match server.watches() {
        watches if (1000..=1001 + CLIENTS).contains(&watches) => Ok(()),
        watches => Err(format!("{watches} watches")),
    })
    .await;
    let before = (server.received(), server.sent());
    let mut guard = held;
    for _ in 0..20 {
        assert_eq!(guard.release().await.expect("released"), Released::Released);
        guard = soon("the next", told.recv()).await.expect("one");
        assert!(told.try_recv().is_err(), "two holders");
    }
    let requests = server.received() - before.0;
    assert!(requests < 20 * 10, "{requests} requests for 20 hand-overs");
    let answers = server.sent() - before.1;
    assert!(
        answers < 20 * 12,
        "{answers} answers and events for 20 hand-overs"
    );
}

/// Near 2^31 the server's sequences no longer tell the order: no claim is granted until the node was made again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_about_to_overflow_is_refused() {
    const LEASE: Duration = Duration::from_secs(60);
    let (server, last) = (ZooKeeper::start(), i32::MAX - (1 << 16));
    let holder = patient(&server.url(), LEASE).await;
    let second = patient(&server.url(), LEASE).await;
    let other = patient(&server.url(), LEASE).await;
    let refused = |error: leasehold::Error, node: &str| {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let what = error.to_string();
        assert!(what.contains("overflow") && what.contains(node), "{what}");
    };
    let held = holder.mutex("o").lock().await.expect("free");
    let permit = holder.semaphore("p", 5).acquire().await.expect("free");
    // The last that is let in, and past the end of all.
    server.restart_with_sequences(&[("/locks/o", last), ("/locks/p/leases", i32::MAX)]);
    let next = waiter(&second, "o");
    line(&other, "o", 1, 1).await;
    for permits in [1, 2] {
        let error = other.semaphore("p", 5).acquire_many(permits).await;
        refused(error.expect_err("an overflow"), "/locks/p/leases");
        line(&other, "p", 1, 0).await;
    }
    for sequence in [i32::MIN, last + 1] {
        server.restart_with_sequences(&[("/locks/o", sequence), ("/locks/p/leases", sequence)]);
        let error = other.mutex("o").lock().await.expect_err("an overflow");
        refused(error, "/locks/o");
        line(&other, "o", 1, 1).await;
    }
    let fence = held.fence();
    assert_eq!(held.release().await.expect("released"), Released::Released);
    drop(granted(next).await);
    drop(permit);
    // The server clears the empty nodes away, and counts from nought again.
    until("it can be locked", async || {
        let two = other.semaphore("p", 5).acquire_many(2).await;
        match (other.mutex("o").lock().await, two) {
            (Ok(guard), Ok(_)) if guard.fence() > fence => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Names that are locked, waited for and released leave no watch behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_do_not_pile_up() {
    let server = ZooKeeper::start();
    let (ours, other) = (
        patient(&server.url(), LONG).await,
        patient(&server.url(), LONG).await,
    );
    for name in (0..50).map(|name| format!("many-{name}")) {
        let held = ours.mutex(&name).lock().await.expect("free");
        let next = waiter(&other, &name);
        line(&ours, &name, 1, 1).await;
        assert_eq!(held.release().await.expect("released"), Released::Released);
        drop(granted(next).await);
        line(&ours, &name, 0, 0).await;
    }
    until("few are watched", async || match server.watches() {
        watches if watches <= 4 => Ok(()),
        watches => Err(format!("{watches} watches")),
    })
    .await;
}

/// A lingering grant is given up when another process joins the line, long before a heartbeat would tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lingering_holder_hears_of_a_newcomer() {
    let server = ZooKeeper::start();
    let (ours, other) = (
        patient(&server.url(), LONG).await,
        patient(&server.url(), LONG).await,
    );
    for _ in 0..3 {
        let lingering = ours.mutex("rest").linger(LONG * 2);
        drop(lingering.lock().await.expect("free"));
        let next = tokio::time::timeout(LONG / 5, other.mutex("rest").lock()).await;
        drop(next.expect("told before a heartbeat").expect("granted"));
    }
}

/// Nodes of other programs in the directory of the locks, and below names: a look at all locks shows those that are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_nodes_break_no_look_at_zookeeper() {
    let server = ZooKeeper::start();
    let ours = client(&server.url()).await;
    let mut kazoo = Process::start(python("kazoo").args([&server.address(), "3"]));
    assert_eq!(kazoo.hear(), "ready");
    let long = format!("leasehold/1 1 1 10000 0 7 {} c", "h".repeat(70_000));
    let hex = |text: &[u8]| {
        text.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    for (path, data) in [
        ("config", &b"\xff\xfe"[..]),
        ("a/b/c/d", b"deep"),
        ("%zz/x", b""),
        ("a/_c_not-a-uuid-lock-0000000001", b"\xff"),
        (
            "a/_c_00000000-0000-0000-0000-000000000000-lock-",
            b"no number",
        ),
        (
            "fat/_c_00000000-0000-0000-0000-000000000000-lock-0000000007",
            long.as_bytes(),
        ),
        ("a/__SEMA", b""),
        ("s/leases/x", b"\xff"),
        ("s/locks", b"\xff"),
    ] {
        assert_eq!(
            kazoo.ask(&format!("put /locks/{path} {}", hex(data))),
            "put",
            "{path}"
        );
    }
    let guard = soon("free", ours.mutex("mine").lock()).await.expect("free");
    let lines = ours.inspect(&Query::all()).await.expect("seen");
    let mine = lines.iter().find(|line| line.name.as_str() == "mine");
    assert_eq!(mine.expect("shown").holders[0].fence, Some(guard.fence()));
    assert_eq!(guard.release().await.expect("released"), Released::Released);
}

/// Nodes of another program fill a line: the next claim is refused and leaves no node. A list of so many is longer than a client of
/// ZooKeeper takes unless it is told to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_zookeeper_has_an_end() {
    let server = ZooKeeper::start();
    let roomy = format!("{}/locks?jute.maxbuffer=4194304", server.url());
    let ours = ConnectOptions::new().lease(LONG).connect(&roomy).await;
    let ours = ours.expect("connected");
    let other = patient(&server.url(), LONG).await;
    let mut kazoo = Process::start(python("kazoo").args([&server.address(), "30"]));
    assert_eq!(kazoo.hear(), "ready");
    for node in 1..=20_000 {
        let path = format!("/locks/x/_c_{node:08x}-0000-0000-0000-000000000000-lock-{node:010}");
        assert_eq!(kazoo.ask(&format!("put {path} 00")), "put", "{path}");
    }
    let refused = ours.mutex("x").lock().await.expect_err("one too many");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("20000 claims"), "{refused}");
    let busy = ours.mutex("x").try_lock().await.expect("an answer");
    assert!(busy.is_none());
    let refused = other.mutex("x").lock().await.expect_err("a long list");
    assert!(refused.to_string().contains("jute.maxbuffer"), "{refused}");
    drop(other.mutex("y").lock().await.expect("another name is free"));
}
