//! Around the end of a dead holder's lease.

use std::fs::File as Line;
use std::path::Path;

use leasehold::engine::{Clock, File};
use leasehold_tests::Bed;
use leasehold_tests::edge::{Ending, passes_on};
use rustix::fs::{FlockOperation, flock};

/// Whether no process is inside a transaction: one that is stopped there keeps the file of its line locked, and every call
/// of others on that name fails until it goes on.
fn unlocked(lines: &Path) -> bool {
    let lines = std::fs::read_dir(lines).expect("the directory of lines");
    lines
        .flatten()
        .flat_map(|line| Line::open(line.path()))
        .all(|line| flock(&line, FlockOperation::NonBlockingLockExclusive).is_ok())
}

async fn edge(ending: Ending) {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path().join("locks");
    let url = format!("file:{}", dir.display());
    let mut bed = Bed::new(env!("CARGO_BIN_EXE_locker"), &[], move |_| url.clone());
    bed.death_is_noticed = true;
    let lines = dir.join("lines");
    bed.stands_aside = Box::new(move || unlocked(&lines));
    let engine = File::new(dir, Clock::boot()).expect("an engine");
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
