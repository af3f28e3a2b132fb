//! What can go wrong with Consul: agents that freeze, leaders that die, sessions that are destroyed.

mod alone;
mod shared;
mod three;

use std::time::Duration;

use leasehold::engine::{Clock, Query};
use leasehold::{Client, ConnectOptions, Guard, GuardState, Name, Released};
use leasehold_testkit::poll::{PATIENCE, eventually as until};
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::consul::{Consul, Three};

const LEASE: Duration = Duration::from_secs(2);
/// For what must outlive a restart or an election.
const LONG: Duration = Duration::from_secs(20);

async fn client(url: &str) -> Client {
    patient(url, LEASE).await
}

async fn patient(url: &str, lease: Duration) -> Client {
    let url = format!("{url}/locks");
    let opened = ConnectOptions::new().lease(lease).connect(&url).await;
    opened.expect("connected")
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// Waits until a guard is in this state.
async fn is(guard: &Guard, state: GuardState) {
    until("the state", async || match guard.state() {
        now if now == state => Ok(()),
        now => Err(format!("{now:?}, {state:?} wanted")),
    })
    .await;
}

/// Waits until so many hold a name and so many wait.
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

/// What a waiter got in the end.
async fn granted(waiter: tokio::task::JoinHandle<leasehold::Result<Guard>>) -> Guard {
    let done = soon("granted", waiter).await;
    done.expect("no panic").expect("granted")
}

/// When a guard was lost, and when the next claim got the lock.
async fn lost_before_granted(
    guard: &Guard,
    next: tokio::task::JoinHandle<leasehold::Result<Guard>>,
) -> Guard {
    let lost = async {
        let _ = guard.lost().await;
        Clock::boot().now()
    };
    let passed_on = async {
        let next = next.await.expect("no panic").expect("granted");
        (Clock::boot().now(), next)
    };
    let (lost, (at, next)) = soon("both", async { tokio::join!(lost, passed_on) }).await;
    assert!(lost < at, "told {} µs after the next had it", lost - at);
    assert!(next.fence() > guard.fence());
    next
}
