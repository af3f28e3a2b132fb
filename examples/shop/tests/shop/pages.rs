//! The pages show the last measurement, and what the guarantees say.

use leasehold_shop::demo::comparison::{ENGINES, in_line};
use leasehold_shop::demo::pages::{measured, parts, pictures, read, with};
use leasehold_shop::demo::rows::{OVERRUN, RIGHT, WRONG};

#[test]
fn what_is_made_of_the_measurement_agrees_with_it() {
    let rows = measured();
    for part in parts(&rows) {
        let page = read(part.page);
        let (page_with, name) = (with(&page, part.name, &part.text), part.name);
        let same = page == page_with;
        assert!(
            same,
            "{}: {name} is not what the code makes of docs/shop.md; scripts/demo --write writes this:\n{}",
            part.page, part.text
        );
    }
    for (path, text) in pictures(&rows) {
        let why = "the picture is not what the code makes of docs/shop.md: scripts/demo --write";
        assert!(read(&path) == text, "{path}: {why}");
    }
}

#[test]
fn every_way_was_measured_and_only_the_wrong_ones_oversold() {
    let rows = measured();
    let wrong = WRONG
        .iter()
        .chain([&OVERRUN])
        .map(|way| way.name.to_owned());
    let right = RIGHT.iter().map(|way| way.name.to_owned());
    let right = right.chain(ENGINES.iter().map(|(engine, _)| in_line(engine)));
    let ways = wrong
        .map(|way| (way, true))
        .chain(right.map(|way| (way, false)));
    let ways: Vec<_> = ways.collect();
    for (way, wrong) in &ways {
        let row = rows.iter().find(|row| row.way == *way);
        let row = row.unwrap_or_else(|| panic!("docs/shop.md has no row of {way}"));
        assert_eq!(row.oversold > 0, *wrong, "{row:?}");
    }
    assert_eq!(rows.len(), ways.len(), "docs/shop.md has other rows too");
}
