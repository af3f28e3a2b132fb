//! Around the end of a dead holder's lease.

use leasehold::engine::{Clock, File};
use leasehold_tests::Bed;
use leasehold_tests::edge::{Ending, passes_on};

async fn edge(ending: Ending) {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("locks");
    let url = format!("file:{}", dir.display());
    let mut bed = Bed::new(env!("CARGO_BIN_EXE_locker"), &[], move |_| url.clone());
    bed.death_is_noticed = true;
    let engine = File::at(dir, Clock::boot()).expect("an engine");
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
