//! Around the end of a dead holder's lease: own layout, Redisson's, and Redlock.

use leasehold::engine::{Redis as Engine, Redisson, Redlock, Url};
use leasehold_tests::Bed;
use leasehold_tests::edge::{Ending, passes_on};

use super::beds;

fn url(bed: &Bed) -> Url {
    Url::parse(&bed.direct()).expect("a URL")
}

async fn own(ending: Ending) {
    let bed = beds::own();
    passes_on(
        &bed,
        Engine::from_url(&url(&bed)).expect("an engine"),
        ending,
    )
    .await;
}

async fn redisson(ending: Ending) {
    let bed = beds::redisson();
    passes_on(
        &bed,
        Redisson::from_url(&url(&bed)).expect("an engine"),
        ending,
    )
    .await;
}

async fn redlock(ending: Ending) {
    let bed = beds::redlock();
    passes_on(
        &bed,
        Redlock::from_url(&url(&bed)).expect("an engine"),
        ending,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_stopped_holder() {
    own(Ending::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_holder() {
    own(Ending::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_stopped_holder_in_redissons_layout() {
    redisson(Ending::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_holder_in_redissons_layout() {
    redisson(Ending::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_stopped_holder_of_a_majority() {
    redlock(Ending::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_killed_holder_of_a_majority() {
    redlock(Ending::Killed).await;
}
