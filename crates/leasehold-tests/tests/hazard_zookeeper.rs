//! What can go wrong with ZooKeeper: answers that are lost, servers that stop, leaders that die, sessions that end.

use std::process::Command;
use std::time::Duration;

use leasehold::engine::{Clock, Query};
use leasehold::{Client, Guard, Name, Options, Released, State};
use leasehold_testkit::peers::python;
use leasehold_testkit::process::Process;
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::zookeeper::{Ensemble, ZooKeeper};
use rustix::process::Signal;

const LEASE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(30);

async fn client(url: &str) -> Client {
    let url = format!("{url}/locks");
    let opened = Options::new().lease(LEASE).connect(&url).await;
    opened.expect("connected")
}

async fn through(proxy: &Proxy) -> Client {
    client(&format!("zookeeper://127.0.0.1:{}", proxy.port)).await
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Asks until the answer is yes.
async fn until(what: &str, mut ask: impl AsyncFnMut() -> Result<(), String>) {
    let (clock, mut last) = (Clock::boot(), String::new());
    let end = clock.now() + PATIENCE.as_micros() as u64;
    while clock.now() < end {
        match ask().await {
            Ok(()) => return,
            Err(seen) => last = seen,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}: last seen: {last}");
}

async fn line(client: &Client, name: &str, holders: usize, waiters: usize) {
    let query = Query::name(Name::new(name).expect("a name"));
    until("the line", async || {
        let lines = client.inspect(&query).await.expect("inspected");
        let line = lines.first();
        let found = line.map_or((0, 0), |line| (line.holders.len(), line.waiters.len()));
        match found == (holders, waiters) {
            true => Ok(()),
            false => Err(format!("{found:?}")),
        }
    })
    .await;
}

fn waiter(client: &Client, name: &str) -> tokio::task::JoinHandle<leasehold::Result<Guard>> {
    let mutex = client.mutex(name);
    tokio::spawn(async move { mutex.lock().await })
}

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
        let guard = soon("locked", ours.mutex(&name).lock())
            .await
            .expect("locked");
        line(&direct, &name, 1, 0).await;
        assert!(
            direct
                .mutex(&name)
                .try_lock()
                .await
                .expect("a try")
                .is_none()
        );
        let next = waiter(&direct, &name);
        line(&direct, &name, 1, 1).await;
        let fence = guard.fence();
        assert_eq!(guard.release().await.expect("released"), Released::Released);
        let next = soon("handed over", next)
            .await
            .expect("no panic")
            .expect("granted");
        assert!(next.fence() > fence);
        drop(next);
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
        let guard = soon("locked", ours.mutex("x").lock())
            .await
            .expect("locked");
        proxy.after(Way::ToClient, 0, Fate::Reset);
        assert_eq!(guard.release().await.expect("released"), Released::Released);
        line(&direct, "x", 0, 0).await;
    }
}

/// The holder cannot be heard: it says so itself before anybody else is let in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_told_before_the_lock_passes_on() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for round in 0..3 {
        let guard = soon("locked", ours.mutex("p").lock())
            .await
            .expect("locked");
        let next = waiter(&direct, "p");
        line(&direct, "p", 1, 1).await;
        proxy.set_both(Fate::Hold);
        let watched = async {
            until("unsure first", async || match guard.state() {
                State::Unsure => Ok(()),
                state => Err(format!("{state:?}")),
            })
            .await;
            let _ = guard.lost().await;
            Clock::boot().now()
        };
        let passed_on = async {
            let next = next.await.expect("no panic").expect("granted");
            (Clock::boot().now(), next)
        };
        let (lost, (granted, next)) =
            soon("both", async { tokio::join!(watched, passed_on) }).await;
        assert!(
            lost < granted,
            "round {round}: told {} µs late",
            lost - granted
        );
        assert!(next.fence() > guard.fence());
        assert_eq!(guard.release().await.expect("a release"), Released::WasLost);
        proxy.set_both(Fate::Pass);
        drop(next);
    }
}

/// A frozen server lets nobody in, and the holder does not trust it longer than its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_not_trusted() {
    let server = ZooKeeper::start();
    let ours = client(&server.url()).await;
    let guard = ours.mutex("f").lock().await.expect("free");
    let (clock, before) = (Clock::boot(), Clock::boot().now());
    server.pause();
    let _ = soon("lost", guard.lost()).await;
    let took = Duration::from_micros(clock.now() - before);
    server.resume();
    assert!(took <= LEASE, "told after {took:?}");
    let again = soon("again", ours.mutex("f").lock()).await.expect("locked");
    assert!(again.fence() > guard.fence());
}

/// A short freeze, as of a slow disk, costs nothing but time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_freeze_loses_nothing() {
    let server = ZooKeeper::start();
    let ours = client(&server.url()).await;
    let guard = ours.mutex("slow").lock().await.expect("free");
    server.pause();
    tokio::time::sleep(LEASE / 5).await;
    server.resume();
    until("valid", async || match guard.state() {
        State::Valid => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
    assert_eq!(guard.release().await.expect("released"), Released::Released);
}

/// A waiter whose session ended stands in line again, at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_while_waiting_joins_again() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    let held = direct.mutex("w").lock().await.expect("free");
    let next = waiter(&ours, "w");
    line(&direct, "w", 1, 1).await;
    proxy.set_both(Fate::Hold);
    line(&direct, "w", 1, 0).await;
    proxy.set_both(Fate::Pass);
    proxy.reset();
    line(&direct, "w", 1, 1).await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
    drop(
        soon("granted", next)
            .await
            .expect("no panic")
            .expect("granted"),
    );
    line(&direct, "w", 0, 0).await;
}

/// The news that the predecessor is gone is lost with the connection: the waiter finds out all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_watch_event_is_made_up_for() {
    let server = ZooKeeper::start();
    let proxy = Proxy::before(server.port());
    let (direct, ours) = (client(&server.url()).await, through(&proxy).await);
    for _ in 0..3 {
        let held = soon("free", direct.mutex("e").lock()).await.expect("free");
        let next = waiter(&ours, "e");
        line(&direct, "e", 1, 1).await;
        proxy.after(Way::ToClient, 0, Fate::Reset);
        assert_eq!(held.release().await.expect("released"), Released::Released);
        drop(
            soon("granted", next)
                .await
                .expect("no panic")
                .expect("granted"),
        );
        line(&direct, "e", 0, 0).await;
    }
}

/// A server that dies and comes back within the session's time loses nobody's lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_keeps_what_is_held() {
    let server = ZooKeeper::start();
    let ours = Options::new().lease(Duration::from_secs(15));
    let ours = ours
        .connect(&format!("{}/locks", server.url()))
        .await
        .expect("connected");
    let guard = ours.mutex("k").lock().await.expect("free");
    let next = waiter(&ours, "other");
    drop(next.await.expect("no panic").expect("granted"));
    server.kill();
    server.restart();
    server.ready();
    until("valid", async || match guard.state() {
        State::Valid => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
    let other = client(&server.url()).await;
    assert!(other.mutex("k").try_lock().await.expect("a try").is_none());
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    let next = soon("free", other.mutex("k").lock())
        .await
        .expect("granted");
    assert!(next.fence() > guard_fence(&other, "k").await);
}

/// A fence that was given out before.
async fn guard_fence(client: &Client, name: &str) -> leasehold::Fence {
    let query = Query::name(Name::new(name).expect("a name"));
    let lines = client.inspect(&query).await.expect("inspected");
    let fence = lines[0].holders[0].fence.expect("held");
    leasehold::Fence::new(fence.get() - 1)
}

/// A leader that dies takes nobody's lock with it, and fences go on growing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_dies_is_survived() {
    let ensemble = Ensemble::start();
    let options = || Options::new().lease(Duration::from_secs(20));
    let url = format!("{}/locks", ensemble.url());
    let ours = options().connect(&url).await.expect("connected");
    let other = options().connect(&url).await.expect("connected");
    let guard = ours.mutex("l").lock().await.expect("free");
    let next = waiter(&other, "l");
    line(&other, "l", 1, 1).await;
    ensemble.leader().kill();
    let fence = guard.fence();
    until("valid", async || match guard.state() {
        State::Valid => Ok(()),
        state => Err(format!("{state:?}")),
    })
    .await;
    assert!(!next.is_finished(), "two holders");
    assert_eq!(
        soon("released", guard.release()).await.expect("released"),
        Released::Released
    );
    let next = soon("handed over", next)
        .await
        .expect("no panic")
        .expect("granted");
    assert!(next.fence() > fence, "another epoch, a larger fence");
}

/// Without a majority nobody is let in, and the holder stops trusting its grant in time, also when it talks to a
/// leader that does not know yet that it leads nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_gives_nothing_and_is_told() {
    let ensemble = Ensemble::start();
    let leader = ensemble.leader().port();
    let ours = client(&ensemble.leader().url()).await;
    let guard = ours.mutex("q").lock().await.expect("free");
    let (clock, before) = (Clock::boot(), Clock::boot().now());
    let others = || {
        ensemble
            .members
            .iter()
            .filter(|member| member.port() != leader)
    };
    others().for_each(ZooKeeper::pause);
    let _ = soon("lost", guard.lost()).await;
    let took = Duration::from_micros(clock.now() - before);
    assert!(took <= LEASE, "told after {took:?}");
    others().for_each(ZooKeeper::resume);
    until("it works again", async || {
        match ours.mutex("q").lock_within(LEASE).await {
            Ok(Some(next)) if next.fence() > guard.fence() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// A process that was stopped past its session finds its lock lost, and its late write refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_holder_wakes_up_without_its_lock() {
    let server = ZooKeeper::start();
    let url = format!("{}/locks", server.url());
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("fenced");
    std::fs::write(&file, "0").expect("writable");
    let locker = || {
        let locker =
            Process::start(Command::new(env!("CARGO_BIN_EXE_locker")).args([&url, "1000"]));
        assert_eq!(locker.hear(), "ready");
        locker
    };
    let (mut stopped, mut other) = (locker(), locker());
    assert!(stopped.ask("lock s").starts_with("held"));
    stopped.signal(Signal::STOP);
    assert!(other.ask("lock s").starts_with("held"), "it passed on");
    assert_eq!(
        other.ask(&format!("write s {}", file.display())),
        "accepted"
    );
    stopped.signal(Signal::CONT);
    assert!(
        stopped
            .ask(&format!("write s {}", file.display()))
            .starts_with("refused")
    );
    assert_eq!(stopped.ask("state s"), "Lost");
}

/// Somebody deletes the name's node with everything below: the holder is told, and the name can be locked again.
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
        assert_eq!(next.state(), State::Valid);
        assert_eq!(next.release().await.expect("released"), Released::Released);
    }
}

/// A thousand wait, and a release wakes one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_are_no_herd() {
    let server = ZooKeeper::start();
    let options = || Options::new().lease(Duration::from_secs(20));
    let url = format!("{}/locks", server.url());
    let ours = options().connect(&url).await.expect("connected");
    let held = ours.mutex("h").strict().lock().await.expect("free");
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..1000 {
        let (mutex, tell) = (ours.mutex("h").strict(), tell.clone());
        drop(tokio::spawn(async move {
            let guard = mutex.lock().await.expect("granted");
            tell.send(guard).expect("heard");
        }));
    }
    line(&ours, "h", 1, 1000).await;
    until("each watches one", async || match server.watches() {
        1000.. => Ok(()),
        watches => Err(format!("{watches} watches")),
    })
    .await;
    let before = server.received();
    let mut guard = held;
    for _ in 0..20 {
        assert_eq!(guard.release().await.expect("released"), Released::Released);
        guard = soon("the next", told.recv()).await.expect("one");
        assert!(told.try_recv().is_err(), "two holders");
    }
    let requests = server.received() - before;
    assert!(requests < 20 * 10, "{requests} requests for 20 hand-overs");
}
