//! The whole contract on the file engine, in a directory of its own per check.

use leasehold::conformance::Subject;
use leasehold::engine::{Clock, File};

/// A directory below the build's own, so that nothing is left elsewhere.
fn directory() -> std::path::PathBuf {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    dir.expect("a directory").keep()
}

leasehold::conformance_tests!(Subject::new(
    File::new(directory().join("locks"), Clock::boot()).expect("a file engine")
));
