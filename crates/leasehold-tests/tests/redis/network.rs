//! The network before a Redis server: delayed, reset, silent, in both directions and at every message.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::conformance::{Subject, fresh_name};
use leasehold::engine::{Redis as Engine, Url};
use leasehold::{Client, ConnectOptions, Guard, GuardState, Result};
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::redis::Redis;
use tokio::task::JoinSet;

const LEASE: Duration = Duration::from_millis(900);
/// The messages of a connection, a lock, some heartbeats and a release are fewer.
const MESSAGES: u64 = 14;

fn server() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
}

fn subject() -> Subject {
    Subject::new(Engine::from_url(&Url::parse(&server().url()).expect("a URL")).expect("an engine"))
}

async fn connect(port: u16) -> Result<Client> {
    let url = format!("redis://127.0.0.1:{port}?timeout=300");
    ConnectOptions::new().lease(LEASE).connect(&url).await
}

/// Counts what must not happen: two inside at once, a fence that does not grow.
#[derive(Default)]
struct Watch {
    inside: AtomicBool,
    fence: AtomicU64,
    entered: AtomicU64,
}

impl Watch {
    /// Stays inside for a while, or until the guard is lost.
    async fn enter(&self, guard: &Guard, stay: Duration) {
        if guard.check().is_err() {
            return;
        }
        assert!(
            !self.inside.swap(true, Ordering::SeqCst),
            "two inside at once"
        );
        let last = self.fence.swap(guard.fence().get(), Ordering::SeqCst);
        assert!(last < guard.fence().get(), "{} after {last}", guard.fence());
        let _ = tokio::time::timeout(stay, guard.lost()).await;
        let _ = self.entered.fetch_add(1, Ordering::SeqCst);
        self.inside.store(false, Ordering::SeqCst);
    }
}

/// Locks, stays for a heartbeat or two, and releases; whatever fails is tried again.
async fn use_lock(port: u16, name: &str, watch: &Watch, times: u32) {
    let mut client = None;
    for _ in 0..times {
        if client.is_none() {
            client = connect(port).await.ok();
        }
        let Some(client) = &client else { continue };
        if let Ok(Some(guard)) = client.mutex(name).lock_within(LEASE * 2).await {
            watch.enter(&guard, LEASE / 2).await;
            let _ = guard.release().await;
        }
    }
}

/// One use of a lock through a network that fails at one message, beside another use that is well connected.
async fn trial(way: Way, after: u64, fate: Fate) -> String {
    let (proxy, name, watch) = (
        Proxy::before(server().port),
        fresh_name(),
        Arc::<Watch>::default(),
    );
    proxy.after(way, after, fate);
    let well = tokio::spawn({
        let (name, watch) = (name.clone(), watch.clone());
        async move { use_lock(server().port, &name, &watch, 3).await }
    });
    use_lock(proxy.port, &name, &watch, 2).await;
    proxy.set_both(Fate::Pass);
    well.await.expect("no violation");
    let s = subject();
    let client = connect(server().port).await.expect("the server is well");
    let guard = s
        .soon("it can be locked again", client.mutex(&name).lock())
        .await
        .expect("granted");
    watch.enter(&guard, Duration::from_millis(1)).await;
    let _ = guard.release().await.expect("released");
    assert!(
        watch.entered.load(Ordering::SeqCst) >= 2,
        "{way:?} {after} {fate:?}: nothing happened"
    );
    name
}

async fn at_every_message(way: Way, fate: Fate) {
    let mut trials = JoinSet::new();
    for after in 0..MESSAGES {
        let _ = trials.spawn(trial(way, after, fate));
    }
    while let Some(done) = trials.join_next().await {
        // Nothing is left behind.
        subject().idle(&done.expect("no violation")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_towards_the_server() {
    at_every_message(Way::ToServer, Fate::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reset_towards_the_client() {
    at_every_message(Way::ToClient, Fate::Reset).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_towards_the_server() {
    at_every_message(Way::ToServer, Fate::Hold).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_towards_the_client() {
    at_every_message(Way::ToClient, Fate::Hold).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_is_only_slow() {
    let proxy = Proxy::before(server().port);
    proxy.set_both(Fate::Delay(Duration::from_millis(40)));
    let (name, watch) = (fresh_name(), Arc::<Watch>::default());
    let url = format!("redis://127.0.0.1:{}", proxy.port);
    let connected = ConnectOptions::new().lease(LEASE * 4).connect(&url).await;
    let client = connected.expect("connected");
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let (client, name, watch) = (client.clone(), name.clone(), watch.clone());
        let _ = tasks.spawn(async move {
            let guard = client.mutex(&name).strict().lock().await.expect("granted");
            watch.enter(&guard, LEASE / 2).await;
            guard.release().await.expect("released")
        });
    }
    while let Some(done) = tasks.join_next().await {
        assert_eq!(done.expect("no violation"), leasehold::Released::Released);
    }
    assert_eq!(watch.entered.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_cut_off_is_told_before_the_next_gets_in() {
    let (proxy, name, s) = (Proxy::before(server().port), fresh_name(), subject());
    let (far, near) = (
        connect(proxy.port).await.expect("connected"),
        connect(server().port).await.expect("connected"),
    );
    let guard = Arc::new(far.mutex(&name).lock().await.expect("free"));
    let waiter = tokio::spawn({
        let (name, first) = (name.clone(), guard.clone());
        async move {
            let next = near.mutex(&name).lock().await;
            (next, first.state())
        }
    });
    s.waiting(&name, 1).await;
    proxy.set_both(Fate::Hold);
    let (next, then) = s.soon("it passes on", waiter).await.expect("joined");
    let next = next.expect("granted");
    assert_eq!(then, GuardState::Lost, "told before the next got in");
    assert!(next.fence() > guard.fence());
    proxy.set_both(Fate::Pass);
    let guard = Arc::into_inner(guard).expect("no other task has it");
    let released = guard.release().await.expect("an answer");
    assert_eq!(released, leasehold::Released::WasLost);
    next.check().expect("the late release touched no other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_is_not_heard_is_found_by_the_next_heartbeat() {
    let (proxy, name, s) = (Proxy::before(server().port), fresh_name(), subject());
    let (far, near) = (
        connect(proxy.port).await.expect("connected"),
        connect(server().port).await.expect("connected"),
    );
    let guard = near.mutex(&name).lock().await.expect("free");
    let waiter = tokio::spawn({
        let (far, name) = (far.clone(), name.clone());
        async move { far.mutex(&name).lock().await }
    });
    s.waiting(&name, 1).await;
    // The message goes to a connection that is gone by then.
    proxy.set(Way::ToClient, Fate::Hold);
    let _ = guard.release().await.expect("released");
    s.waiting(&name, 0).await;
    proxy.reset();
    proxy.set(Way::ToClient, Fate::Pass);
    let granted = s
        .soon("it is found", waiter)
        .await
        .expect("joined")
        .expect("granted");
    granted.check().expect("ours");
}

/// Longer than a server may take to answer.
const STANDS_STILL: Duration = Duration::from_millis(1_500);
/// Longer than it takes to ask it.
const IS_ASKED_WITHIN: Duration = Duration::from_secs(1);

/// A process that stands still while the server is asked whether it is there does not take that for silence.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the process stands still: nothing of it runs meanwhile"
)]
fn a_process_that_stood_still_keeps_its_connection() {
    let proxy = Proxy::before(server().port);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().expect("a runtime");
    let url = format!("redis://127.0.0.1:{}", proxy.port);
    let client = runtime.block_on(leasehold::connect(&url));
    let (client, name) = (client.expect("connected"), fresh_name());
    let pair = async || client.mutex(&name).lock().await?.release().await;
    // A server is asked once after it was used. That may have been before its answers were held: then once more.
    runtime.block_on(subject().eventually("the server is asked", async || {
        proxy.set(Way::ToClient, Fate::Pass);
        let _ = pair().await.map_err(|error| error.to_string())?;
        let sent = proxy.passed(Way::ToServer);
        proxy.set(Way::ToClient, Fate::Hold);
        let asked = async {
            while proxy.passed(Way::ToServer) == sent {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let asked = tokio::time::timeout(IS_ASKED_WITHIN, asked).await;
        asked.map_err(|_| format!("{sent} messages"))
    }));
    proxy.set(Way::ToClient, Fate::Pass);
    std::thread::sleep(STANDS_STILL);
    let _ = runtime
        .block_on(pair())
        .expect("the connection is as it was");
}
