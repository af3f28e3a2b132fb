//! Both at once, on a number that only the lock protects.

use std::time::Duration;

use leasehold_testkit::poll::until;

use super::{GENERATIONS, locker, redisson_at, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_and_four_count_to_ten_thousand() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = dir.path().join("number");
    std::fs::write(&file, "0").expect("writable");
    // Six busy processes and their server share the machine: a second without an answer is no fault here.
    let mut lockers: Vec<_> = (0..4).map(|_| locker("&timeout=10000")).collect();
    let mut javas = GENERATIONS.map(redisson_at);
    for locker in &mut lockers {
        locker.say(&format!("count n {} 1250", file.display()));
    }
    for java in &mut javas {
        java.say(&format!("count n {} 1250 2", file.display()));
    }
    for process in lockers.iter().chain(&javas) {
        assert_eq!(process.hear_within(Duration::from_secs(120)), "counted");
    }
    let counted = std::fs::read_to_string(&file).expect("readable");
    assert_eq!(counted, "10000", "lost updates");
    until("nothing of the lock is left", || {
        match server().cli("EXISTS n").trim() {
            "0" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
}
