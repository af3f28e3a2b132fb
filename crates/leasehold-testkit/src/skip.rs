//! Skipping a test on purpose: printed, counted, never silent.

use std::io::Write;

/// Whether a test was asked to be skipped by `LEASEHOLD_SKIP=name,name`. Says so, and notes it where `scripts/test`
/// counts.
pub fn asked_for(name: &str) -> bool {
    let asked = std::env::var("LEASEHOLD_SKIP").unwrap_or_default();
    if !asked.split(',').any(|asked| asked == name) {
        return false;
    }
    println!("skipped {name}: LEASEHOLD_SKIP asks for it");
    if let Some(list) = std::env::var_os("LEASEHOLD_SKIPPED") {
        let list = std::fs::File::options()
            .append(true)
            .create(true)
            .open(list);
        let noted = list.and_then(|mut list| writeln!(list, "{name}"));
        noted.expect("the list of skipped tests can be written");
    }
    true
}
