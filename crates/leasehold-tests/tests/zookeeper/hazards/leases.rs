//! A lease is the timeout of a ZooKeeper session: one session for each lease in use, each on its own.

use super::*;
use leasehold::ErrorKind;

fn locker(server: &ZooKeeper, lease: &str) -> Process {
    let url = format!("{}/locks", server.url());
    let mut locker = Command::new(env!("CARGO_BIN_EXE_locker"));
    let locker = Process::start(locker.args([url.as_str(), lease]));
    assert_eq!(locker.hear(), "ready");
    locker
}

/// A killed holder's lock passes on after 4/3 of the lease that it asked for and two ticks, whatever other leases its
/// client has had.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holders_lock_passes_on_after_its_own_lease() {
    let server = ZooKeeper::start();
    let ours = patient(&server.url(), LONG).await;
    for lease in [6_000, 1_000_u64] {
        let mut holder = locker(&server, &lease.to_string());
        assert!(holder.ask("lock d").starts_with("held"));
        let next = waiter(&ours, "d");
        line(&ours, "d", 1, 1).await;
        let (clock, killed) = (Clock::boot(), Clock::boot().now());
        holder.kill();
        drop(granted(next).await);
        let took = Duration::from_micros(clock.now() - killed);
        // Two ticks of 200 ms, and a second for a busy machine.
        let most = Duration::from_millis(lease * 4 / 3 + 400 + 1_000);
        assert!(
            took <= most,
            "passed on after {took:?}, a lease of {lease} ms"
        );
    }
}

/// Claims of one lease share a session; sessions of leases that are not used any more are closed but for a few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_one_session_for_each_lease_in_use() {
    let server = ZooKeeper::start();
    let ours = patient(&server.url(), LONG).await;
    let mut held = Vec::new();
    for at in 0..30_u64 {
        let lease = LONG + Duration::from_secs(at % 3);
        let mutex = ours.mutex(format!("name-{at}")).lease(lease);
        held.push(mutex.lock().await.expect("free"));
    }
    // Three leases, and the session that was opened first.
    assert_eq!(server.connections(), 4);
    for at in 0..20_u64 {
        let mutex = ours.mutex("other").lease(LONG + Duration::from_millis(at));
        let guard = mutex.lock().await.expect("free");
        assert_eq!(guard.release().await.expect("released"), Released::Released);
    }
    until("few are kept", async || match server.connections() {
        few if few <= 3 + 5 => Ok(()),
        many => Err(format!("{many} connections")),
    })
    .await;
    assert!(held.iter().all(|guard| guard.state() == GuardState::Valid));
}

/// Two sessions of one client behind two doors, and one door is silent: the lock of the other session is renewed as
/// if nothing were wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_session_costs_no_other_its_locks() {
    let server = ZooKeeper::start();
    let doors = [(); 2].map(|()| Proxy::before(server.port()));
    let [one, two] = [0, 1].map(|door: usize| doors[door].port);
    let url = format!("zookeeper://127.0.0.1:{one},127.0.0.1:{two}/locks");
    let lease = LEASE * 3;
    let ours = ConnectOptions::new().lease(lease).connect(&url).await;
    let ours = ours.expect("connected");
    // Every lease has a session, and every session comes through a door by chance.
    let mut behind: [Vec<Guard>; 2] = Default::default();
    for at in 0..40 {
        let before = doors.each_ref().map(|door| door.passed(Way::ToServer));
        let lease = lease + Duration::from_millis(at * 10);
        let guard = ours.mutex(format!("s-{at}")).lease(lease).lock().await;
        let guard = guard.expect("free");
        // A claim is its session's greeting, its parents and its node: more than a heartbeat of another session.
        let sent = [0, 1].map(|door| doors[door].passed(Way::ToServer) - before[door]);
        behind[usize::from(sent[1] > sent[0])].push(guard);
        if behind.iter().all(|guards| guards.len() >= 3) {
            break;
        }
    }
    let [silent, heard] = behind;
    assert!(
        !silent.is_empty() && !heard.is_empty(),
        "both doors are used"
    );
    doors[0].set_both(Fate::Hold);
    let (clock, begun) = (Clock::boot(), Clock::boot().now());
    let lasted = || Duration::from_micros(clock.now() - begun);
    until("a lease of silence", async || {
        for guard in &heard {
            let (left, after) = (guard.remaining(), lasted());
            assert!(
                left > lease * 2 / 5,
                "{left:?} left of {lease:?} after {after:?} of silence"
            );
        }
        match lasted() > lease {
            true => Ok(()),
            false => Err(format!("{:?} so far", lasted())),
        }
    })
    .await;
}

/// A port that does not speak ZooKeeper is named in the error, whatever it answers, and soon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_of_another_service_is_named() {
    use tokio::io::AsyncWriteExt;
    for says in [
        &b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..],
        b"-ERR unknown command\r\n",
        b"",
        // A frame that is no greeting.
        &[0, 0, 0, 2, 0, 0],
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let serving = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(says).await;
                kept.push(stream);
            }
        });
        let engine = leasehold::engine::Url::parse(&format!("zookeeper://{address}"));
        let engine =
            leasehold::engine::ZooKeeper::from_url(&engine.expect("a URL")).expect("an engine");
        let who = leasehold::engine::Identity::of_this_process();
        let inbox = leasehold::engine::Inbox::new(|_| {});
        let opened = leasehold::engine::Engine::open(&engine, &who, inbox);
        let error = soon("an answer", opened).await.expect_err("no ZooKeeper");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let said = error.to_string();
        assert!(
            said.contains(&address) && said.contains("ZooKeeper"),
            "{said}"
        );
        assert!(!error.may_have_happened(), "{said}");
        serving.abort();
    }
}
