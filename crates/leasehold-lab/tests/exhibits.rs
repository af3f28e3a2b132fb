//! Every broken lock breaks as it says, and the same schedule on Leasehold does not.

use leasehold_lab::exhibits::{EXHIBITS, run};

#[tokio::test]
async fn every_exhibit_breaks_and_ours_does_not() {
    let temp = tempfile::tempdir().unwrap();
    for exhibit in &EXHIBITS {
        let good = run(&[exhibit.name.to_owned()], temp.path()).await;
        let good = good.unwrap_or_else(|error| panic!("{}: {error}", exhibit.name));
        assert!(good, "{} did not show what it says", exhibit.name);
        let picture =
            std::fs::read_to_string(temp.path().join(format!("{}.svg", exhibit.name))).unwrap();
        assert!(picture.contains("broken:"), "{picture}");
    }
}
