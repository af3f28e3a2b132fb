//! Around the end of a dead holder's session.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::{Url, ZooKeeper as Engine};
use leasehold_testkit::servers::zookeeper::ZooKeeper;
use leasehold_tests::Bed;
use leasehold_tests::edge::{Ending, passes_on};

const LEASE: Duration = Duration::from_secs(2);

async fn edge(ending: Ending) {
    static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
    let port = SERVER.get_or_init(ZooKeeper::start).port();
    let mut bed = Bed::new(env!("CARGO_BIN_EXE_locker"), &[port], |ports| {
        format!("zookeeper://127.0.0.1:{}/edge", ports[0])
    });
    bed.lease = LEASE;
    // A server ends sessions tick by tick, and a tick is 200 ms.
    bed.step = Duration::from_millis(15);
    let url = Url::parse(&bed.direct()).expect("a URL");
    let engine = Engine::at(&url).expect("an engine").lease(LEASE);
    passes_on(&bed, engine, ending).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_stopped_holder() {
    edge(Ending::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_holder() {
    edge(Ending::Killed).await;
}
