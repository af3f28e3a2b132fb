//! Faults of ZooKeeper: answers that are lost, servers that stop, leaders that die, sessions that end.

mod answers;
mod cuts;
mod ensemble;
mod leases;
mod nodes;
mod secured;
mod silence;

use std::process::Command;
use std::time::Duration;

use leasehold::engine::{Clock, Query};
use leasehold::{Client, ConnectOptions, Guard, GuardState, Name, Released};
use leasehold_testkit::peers::python;
use leasehold_testkit::poll::{PATIENCE, eventually as until};
use leasehold_testkit::process::Process;
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::zookeeper::{Ensemble, ZooKeeper};
use rustix::process::Signal;

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

async fn through(proxy: &Proxy) -> Client {
    client(&format!("zookeeper://127.0.0.1:{}", proxy.port)).await
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

/// The guard of a waiter in the end.
async fn granted(waiter: tokio::task::JoinHandle<leasehold::Result<Guard>>) -> Guard {
    let done = soon("granted", waiter).await;
    done.expect("no panic").expect("granted")
}
