//! A slot of a cluster on its way from one server to another, for longer than a lease.
use std::time::Duration;

use leasehold::conformance::{Subject, fresh_name};
use leasehold::engine::{Redis as Engine, Url};
use leasehold::{Client, ConnectOptions, Guard};
use leasehold_testkit::servers::redis::Cluster;

const LEASE: Duration = Duration::from_secs(3);
/// As many names as this are in slots of every server.
const NAMES: usize = 6;

async fn client(cluster: &Cluster) -> Client {
    let connected = ConnectOptions::new()
        .lease(LEASE)
        .connect(&cluster.url())
        .await;
    connected.expect("connected")
}

fn subject(cluster: &Cluster) -> Subject {
    let url = Url::parse(&cluster.url()).expect("a URL");
    let mut subject = Subject::new(Engine::from_url(&url).expect("an engine"));
    subject.patience = Duration::from_secs(60);
    subject
}

/// Every slot of ours that the first member has, on its way to the second.
struct Migration<'a> {
    cluster: &'a Cluster,
    ids: [String; 2],
    slots: Vec<String>,
}

impl<'a> Migration<'a> {
    fn begin(cluster: &'a Cluster) -> Self {
        let ids = [0, 1].map(|at: usize| cluster.nodes[at].cli("CLUSTER MYID").trim().to_owned());
        let mut slots = Vec::new();
        for tag in 0..128 {
            let slot = cluster.nodes[0].cli(&format!("CLUSTER KEYSLOT {tag:02x}"));
            let (slot, set) = (slot.trim(), format!("CLUSTER SETSLOT {}", slot.trim()));
            let said = cluster.nodes[0].cli(&format!("{set} MIGRATING {}", ids[1]));
            if said.trim() == "OK" {
                let said = cluster.nodes[1].cli(&format!("{set} IMPORTING {}", ids[0]));
                assert_eq!(said.trim(), "OK");
                slots.push(slot.to_owned());
            }
        }
        assert!(slots.len() > 20, "{slots:?}");
        Self {
            cluster,
            ids,
            slots,
        }
    }

    /// Moves the keys that are there now; how many. The slots stay on their way.
    fn move_keys(&self) -> usize {
        let (mut moved, port) = (0, self.cluster.nodes[1].port.to_string());
        for slot in &self.slots {
            let keys = self.cluster.nodes[0].cli(&format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
            let keys: Vec<_> = keys.lines().filter(|key| !key.is_empty()).collect();
            if !keys.is_empty() {
                let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
                let said = self.cluster.nodes[0].cli_args(&[&migrate[..], &keys].concat());
                assert_eq!(said.trim(), "OK");
                moved += keys.len();
            }
        }
        moved
    }

    fn finish(&self) {
        for slot in &self.slots {
            for node in [1, 0, 2] {
                let set = format!("CLUSTER SETSLOT {slot} NODE {}", self.ids[1]);
                assert_eq!(self.cluster.nodes[node].cli(&set).trim(), "OK");
            }
        }
    }
}

async fn lock_some(client: &Client) -> Vec<Guard> {
    let mut guards = Vec::new();
    for _ in 0..NAMES {
        guards.push(client.mutex(fresh_name()).lock().await.expect("free"));
    }
    guards
}

/// All of them are renewed, twice, and no other client gets one.
async fn kept(s: &Subject, guards: &[Guard], other: &Client) {
    for _ in 0..2 {
        let before: Vec<_> = guards.iter().map(Guard::deadline).collect();
        s.eventually("every lock is renewed", async || {
            let pairs = guards.iter().zip(&before);
            let renewed = pairs.filter(|(guard, before)| guard.deadline() > **before);
            match renewed.count() {
                all if all == guards.len() => Ok(()),
                some => Err(format!("{some} renewed")),
            }
        })
        .await;
    }
    for guard in guards {
        guard.check().expect("kept");
        let name = guard.name().as_str();
        // A line cannot grow while its slot is on its way: then it says so.
        match other.mutex(name).try_lock().await {
            Ok(tried) => assert!(tried.is_none(), "two holders of {name}"),
            Err(error) => assert!(error.to_string().contains("TRYAGAIN"), "{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_stays_on_its_way_keeps_its_locks_and_gives_new_ones() {
    let cluster = Cluster::start();
    let (a, b, s) = (
        client(&cluster).await,
        client(&cluster).await,
        subject(&cluster),
    );
    let mut guards = lock_some(&a).await;
    // Lines with a waiter have more keys than one.
    let mut waiters = Vec::new();
    for guard in &guards {
        let (b, name) = (b.clone(), guard.name().clone());
        waiters.push(tokio::spawn(
            async move { b.mutex(name.as_str()).lock().await },
        ));
    }
    for guard in &guards {
        s.waiting(guard.name().as_str(), 1).await;
    }
    let waited_for = guards.len();
    guards.extend(lock_some(&a).await);

    let migration = Migration::begin(&cluster);
    guards.extend(lock_some(&a).await);
    kept(&s, &guards, &b).await;
    println!("{} keys moved", migration.move_keys());
    guards.extend(lock_some(&a).await);
    kept(&s, &guards, &b).await;

    let rest = guards.split_off(waited_for);
    for (guard, waiter) in guards.into_iter().zip(waiters) {
        let fence = guard.fence();
        let _ = guard.release().await.expect("released");
        let granted = s.soon("the waiter holds", waiter).await.expect("joined");
        assert!(granted.expect("granted").fence() > fence);
    }
    for guard in rest.iter().step_by(2) {
        guard.check().expect("kept");
    }
    migration.finish();
    kept(&s, &rest, &b).await;
    for guard in rest {
        let (name, fence) = (guard.name().clone(), guard.fence());
        let _ = guard.release().await.expect("released");
        let next = b.mutex(name.as_str()).lock().await.expect("free again");
        assert!(next.fence() > fence);
    }
}
