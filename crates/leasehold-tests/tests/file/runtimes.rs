//! The runtime of a call, or of the client, ends.

use leasehold_tests::Bed;
use leasehold_tests::runtimes::{of_callers_may_end, of_the_client_is_gone};

fn on_a_directory(test: fn(&Bed)) {
    let home = tempfile::tempdir().expect("a directory");
    let url = format!("file:{}", home.path().join("locks").display());
    let bed = Bed::new(env!("CARGO_BIN_EXE_locker"), &[], move |_| url.clone());
    test(&bed);
}

#[test]
fn file_of_callers() {
    on_a_directory(of_callers_may_end);
}

#[test]
fn file_of_the_client() {
    on_a_directory(of_the_client_is_gone);
}
