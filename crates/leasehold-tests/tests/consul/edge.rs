//! Around the end of a dead holder's session.

use leasehold::engine::{Consul as Engine, Url};
use leasehold_tests::edge::{Ending, passes_on};

use super::beds::{LEASE, one};

async fn edge(ending: Ending) {
    let bed = one();
    let url = Url::parse(&bed.direct()).expect("a URL");
    let engine = Engine::from_url(&url).expect("an engine").lease(LEASE);
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
