//! The runtime of a call, or of the client, ends.

use leasehold_tests::runtimes::{of_callers_may_end, of_the_client_is_gone};

use std::sync::Arc;

use leasehold::engine::{Redis, Url};
use leasehold_testkit::servers::redis::Cluster;
use tokio::runtime::Runtime;

use super::beds;

/// The connections are those of the engine, and were made on the runtime of its first client.
fn an_engine_outlives_its_first_client(url: &str) {
    let engine = Redis::from_url(&Url::parse(url).expect("a URL")).expect("an engine");
    let engine = Arc::new(engine);
    for name in ["first", "second"] {
        let runtime = Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let opened = leasehold::ConnectOptions::new().open(engine.clone()).await;
            let client = opened.unwrap_or_else(|error| panic!("{name}: {error}"));
            for at in 0..20 {
                let guard = client.mutex(format!("{name} {at}")).lock().await;
                let guard = guard.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(guard.release().await.is_ok());
            }
        });
    }
}

#[test]
fn own_of_the_first_client() {
    an_engine_outlives_its_first_client(&beds::own().direct());
}

#[test]
fn cluster_of_the_first_client() {
    let cluster = Cluster::start();
    let members: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port))
        .collect();
    an_engine_outlives_its_first_client(&format!("redis+cluster://{}", members.join(",")));
}

#[test]
fn own_of_callers() {
    of_callers_may_end(&beds::own());
}

#[test]
fn own_of_the_client() {
    of_the_client_is_gone(&beds::own());
}
#[test]
fn redisson_of_callers() {
    of_callers_may_end(&beds::redisson());
}

#[test]
fn redisson_of_the_client() {
    of_the_client_is_gone(&beds::redisson());
}
#[test]
fn redlock_of_callers() {
    of_callers_may_end(&beds::redlock());
}

#[test]
fn redlock_of_the_client() {
    of_the_client_is_gone(&beds::redlock());
}
