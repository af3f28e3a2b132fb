//! The pages that show what was measured. The table of `docs/shop.md` is the measurement; the others are made of it.

use std::path::{Path, PathBuf};

use super::comparison::{comparison, in_line};
use super::picture::{THEMES, Theme, picture};
use super::rows::{OVERRUN, RIGHT, Row, WRONG, table};

/// The page with the measurement.
pub const PAGE: &str = "docs/shop.md";

/// A part of a page that a program writes.
#[derive(Debug)]
pub struct Part {
    /// The page, from the root of the project.
    pub page: &'static str,
    /// The name of the part.
    pub name: &'static str,
    /// What is in it.
    pub text: String,
}

/// The root of the project.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Reads a page.
///
/// # Panics
/// If it is not there.
pub fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The last measurement.
pub fn measured() -> Vec<Row> {
    let page = read(PAGE);
    let (from, to) = place(&page, "load");
    page[from..to].lines().filter_map(Row::parse).collect()
}

/// What is shown of a measurement on other pages.
pub fn parts(rows: &[Row]) -> Vec<Part> {
    let short = table(short(rows));
    vec![
        Part {
            page: "README.md",
            name: "shop",
            text: short,
        },
        Part {
            page: "docs/which-lock.md",
            name: "comparison",
            text: comparison(rows),
        },
    ]
}

/// The pictures of a measurement: their paths, and what is in them.
pub fn pictures(rows: &[Row]) -> Vec<(String, String)> {
    let picture = |theme: Theme| {
        let path = format!("docs/pictures/shop-{}.svg", theme.name);
        (path, picture(&short(rows), &theme))
    };
    THEMES.map(picture).into()
}

/// The rows that a short table has.
fn short(rows: &[Row]) -> Vec<&Row> {
    let waits = ["Redis", "Redlock", "MariaDB", "ZooKeeper"].map(in_line);
    let names = WRONG
        .iter()
        .chain([&OVERRUN])
        .map(|way| way.name.to_owned());
    let right = |at: usize| RIGHT[at].name.to_owned();
    let names = names.chain([right(1)]).chain(waits);
    let names = names.chain([right(2), right(3), right(4)]);
    names
        .filter_map(|name| rows.iter().find(|row| row.way == name))
        .collect()
}

/// Writes a part.
///
/// # Panics
/// If the page lacks it, or cannot be written.
pub fn write(part: &Part) {
    let text = with(&read(part.page), part.name, &part.text);
    write_file(part.page, &text);
}

/// Writes a file of the project.
///
/// # Panics
/// If it cannot be written.
pub fn write_file(path: &str, text: &str) {
    std::fs::write(root().join(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
}

/// A page with another text in one of its parts.
pub fn with(page: &str, name: &str, text: &str) -> String {
    let (from, to) = place(page, name);
    format!("{}\n{}\n{}", &page[..from], text.trim_end(), &page[to..])
}

fn place(page: &str, name: &str) -> (usize, usize) {
    let begin = format!("<!-- {name}: scripts/demo writes this -->");
    let end = format!("<!-- {name}: end -->");
    let lacks = || -> usize { panic!("the page lacks the lines {begin} and {end}") };
    let from = page.find(&begin).map_or_else(lacks, |at| at + begin.len());
    let to = page.find(&end).unwrap_or_else(lacks);
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_replaced_and_the_rest_stays() {
        let page = "a\n<!-- x: scripts/demo writes this -->\nold\n<!-- x: end -->\nb";
        let with = with(page, "x", "new\n");
        assert_eq!(with, page.replace("old", "new"));
    }
}
