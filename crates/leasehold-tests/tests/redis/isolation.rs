//! One key of another type; one node of a cluster, and one of Redlock's, that says nothing.

use leasehold::conformance::Subject;
use leasehold::conformance::isolation::{Spoil, one_bad_name_costs_no_other};
use leasehold::engine::{Redis as Engine, Redisson, Redlock, Url};
use leasehold_testkit::servers::redis::{Cluster, Redis};
use leasehold_testkit::servers::redlock::Nodes;

fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

/// The server is ours alone, and does not end before the process.
fn server() -> &'static Redis {
    Box::leak(Box::new(Redis::start()))
}

/// A key that is not ours any more; gone again when it is dropped.
struct Foreign(&'static Redis, String);

impl Foreign {
    fn new(server: &'static Redis, pattern: &str) -> Self {
        let key = server.cli_args(&["--raw", "KEYS", pattern]);
        let key = key.lines().next().expect("the key of the lock").to_owned();
        // In one step: a claim that comes between two makes the key its own again.
        let script = "redis.call('DEL', KEYS[1]) return redis.call('LPUSH', KEYS[1], 'foreign')";
        let pushed = server.cli_args(&["EVAL", script, "1", &key]);
        assert_eq!(pushed.trim(), "1");
        Self(server, key)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.0.cli_args(&["DEL", &self.1]);
    }
}

/// A server that says nothing until this is dropped.
struct Silent(&'static Redis);

impl Silent {
    fn new(server: &'static Redis) -> Self {
        server.pause(true);
        Self(server)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.0.pause(false);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type() {
    let server = server();
    let mut subject = Subject::new(Engine::from_url(&url(&server.url())).expect("an engine"));
    let spoil = move |name: &str| Foreign::new(server, &format!("lh:{{??}}:{name}"));
    subject.spoil = Some(Spoil::new(spoil));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_type_in_redissons_layout() {
    let server = server();
    let url = url(&format!("{}?layout=redisson", server.url()));
    let mut subject = Subject::new(Redisson::from_url(&url).expect("an engine"));
    subject.spoil = Some(Spoil::new(move |name| Foreign::new(server, name)));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_of_redlock() {
    let nodes: &'static Nodes = Box::leak(Box::new(Nodes::start(3)));
    let mut subject = Subject::new(Redlock::from_url(&url(&nodes.url())).expect("an engine"));
    subject.spoil = Some(Spoil::new(|_| Silent::new(&nodes.nodes[0])));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}

/// Which member has a name, by its hash tag. Not asked of a member: it may be the one that says nothing.
fn member(name: &str) -> usize {
    let crc = |bytes: &[u8]| {
        bytes.iter().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
                (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
            })
        })
    };
    let tag = format!("{:02x}", crc(name.as_bytes()) % 128);
    usize::from(crc(tag.as_bytes()) % 16_384 / 5_461).min(2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_of_a_cluster() {
    let cluster: &'static Cluster = Box::leak(Box::new(Cluster::start()));
    let mut subject = Subject::new(Engine::from_url(&url(&cluster.url())).expect("an engine"));
    let spoil = Spoil::new(|name| Silent::new(&cluster.nodes[member(name)]));
    let spares = |bad: &str, other: &str| member(bad) != member(other);
    subject.spoil = Some(spoil.sparing(spares));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}
