//! Every broken lock breaks as it says, and the same schedule on Leasehold does not.

use leasehold_lab::exhibits::{EXHIBITS, run};

#[test]
fn every_exhibit_breaks_and_ours_does_not() {
    let temp = tempfile::tempdir().unwrap();
    let good = run(&["all".to_owned()], temp.path()).unwrap();
    assert!(good, "an exhibit did not show what it says");
    for exhibit in &EXHIBITS {
        let picture = |of: &str| std::fs::read_to_string(temp.path().join(of)).unwrap();
        let theirs = picture(&format!("{}.svg", exhibit.name));
        assert!(
            theirs.contains(&format!("broken: {}", exhibit.breaks)),
            "{theirs}"
        );
        let ours = picture(&format!("{}-leasehold.svg", exhibit.name));
        assert!(!ours.contains("broken:"), "{ours}");
    }
}
