//! Curator's locks, kazoo's with Curator's node names, and ours on one path: they exclude each other, hand over to each
//! other and survive each other.

mod both;
mod curator;
mod kazoo;

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, ConnectOptions, Name};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::zookeeper::ZooKeeper;

const LEASE: Duration = Duration::from_secs(3);
const LEASE_MS: &str = "3000";

fn server() -> &'static ZooKeeper {
    static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
    SERVER.get_or_init(ZooKeeper::start)
}

/// One library, and the node below which its tests lock.
#[derive(Clone, Copy)]
struct Peer {
    start: fn() -> Command,
    root: &'static str,
}

impl Peer {
    fn process(self) -> Process {
        let process = Process::start(&mut (self.start)());
        assert_eq!(process.hear(), "ready");
        process
    }

    fn url(self) -> String {
        format!("{}{}", server().url(), self.root)
    }

    async fn ours(self) -> Client {
        let opened = ConnectOptions::new()
            .lease(LEASE)
            .connect(&self.url())
            .await;
        opened.expect("connected")
    }

    /// A process of ours.
    fn locker(self) -> Process {
        let mut locker = Command::new(env!("CARGO_BIN_EXE_locker"));
        let locker = Process::start(locker.args([&self.url(), LEASE_MS]));
        assert_eq!(locker.hear(), "ready");
        locker
    }

    /// A command for the peer, on the node of one of our names.
    fn on(self, verb: &str, name: &str) -> String {
        format!("{verb} {}/{name}", self.root)
    }
}

/// Waits until so many wait for a name.
async fn waiting(client: &Client, name: &str, count: usize) {
    let query = Query::name(Name::new(name).expect("a name"));
    eventually("so many wait", async || {
        let lines = client.inspect(&query).await.expect("inspected");
        match lines.first().map_or(0, |line| line.waiters.len()) {
            seen if seen == count => Ok(()),
            seen => Err(format!("{seen} wait for {name}, {count} wanted")),
        }
    })
    .await;
}
