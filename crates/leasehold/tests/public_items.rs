//! The public items, compared with the list that is kept in `public_items.txt`: a change to the API is seen in a review.
//!
//! Read from the source: the lint `unreachable_pub` keeps `pub` for what users can reach. After a change that is meant,
//! `LEASEHOLD_PUBLIC_KEEP=1 cargo test -p leasehold --test public_items` writes the list anew.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The block that a line of a file is in.
#[derive(Clone, PartialEq)]
enum Block {
    /// An `impl` of a type, or a macro that makes methods: what is `pub` counts.
    Methods(String),
    /// Every function counts.
    Trait(String),
    /// Every variant counts.
    Enum(String),
    Other,
}

/// The items of one file.
fn items(source: &str) -> Vec<String> {
    let (mut found, mut block, mut open) = (Vec::new(), Block::Other, false);
    let lines: Vec<_> = source.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        if *line == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.ends_with('{')) {
            break;
        }
        if code.starts_with("//") || code.is_empty() {
            continue;
        }
        if code.starts_with("#[") {
            open |= code == "#[non_exhaustive]";
            continue;
        }
        let top = code.len() == line.len();
        let item = signature(&lines[at..]);
        if top && !code.starts_with([')', '>', '{']) && !code.starts_with("where") {
            block = begins(&item);
        }
        let mark = if open { "#[non_exhaustive] " } else { "" };
        open = false;
        if let Some(item) = public(&item, line.len() - code.len(), &block) {
            found.push(format!("{mark}{item}"));
        }
    }
    found
}

/// A line and those that it goes on with, up to its body, on one line.
fn signature(lines: &[&str]) -> String {
    let first = lines[0].trim_start();
    let mut text = String::new();
    for line in lines {
        let line = line.trim();
        if line.starts_with("//") || line.starts_with("#[") {
            continue;
        }
        text += line;
        text.push(' ');
        let is_use = first.starts_with("pub use");
        if line.ends_with(';') || line.ends_with('}') || (line.ends_with('{') && !is_use) {
            break;
        }
        if line.ends_with(',') && is_whole(&text) {
            break;
        }
    }
    let text = text
        .replace("( ", "(")
        .replace(", )", ")")
        .replace(" ,", ",");
    let text = match first.starts_with("pub use") {
        true => &text[..],
        false => text.split(" {").next().unwrap_or_default(),
    };
    text.trim().trim_end_matches([',', ';']).to_owned()
}

/// Whether every bracket is closed.
fn is_whole(text: &str) -> bool {
    let text = text.replace("->", "").replace("=>", "");
    let count = |brackets: [char; 4]| text.matches(brackets).count();
    count(['(', '[', '{', '<']) == count([')', ']', '}', '>'])
}

/// The block that begins with this line, if one does.
fn begins(item: &str) -> Block {
    let name = |text: &str| {
        text.split(['<', ' ', '(', ':', ';'])
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    if item.starts_with("impl") && !item.contains(" for ") {
        return Block::Methods(item.to_owned());
    }
    for (start, block) in [
        ("pub struct ", Block::Methods as fn(String) -> Block),
        ("macro_rules! ", Block::Methods),
        ("pub trait ", Block::Trait),
        ("pub enum ", Block::Enum),
    ] {
        if let Some(rest) = item.strip_prefix(start) {
            return block(name(rest));
        }
    }
    Block::Other
}

/// How the list shows an item; none if it is not public.
fn public(item: &str, indent: usize, block: &Block) -> Option<String> {
    let shown = match item.starts_with("pub struct") && !item.contains("(pub") {
        // The fields of a tuple are its own.
        true => item.split('(').next().unwrap_or_default(),
        false => item,
    };
    match block {
        _ if indent == 0 => item.starts_with("pub ").then(|| shown.to_owned()),
        Block::Methods(of) => item.starts_with("pub ").then(|| format!("{of}: {item}")),
        Block::Trait(of) if indent == 4 => {
            let called = item.contains("fn ").then(|| format!("trait {of}: {item}"));
            called.filter(|_| item.starts_with("fn ") || item.starts_with("async fn "))
        }
        Block::Enum(of) if indent == 4 && !item.starts_with('}') => {
            Some(format!("enum {of}: {item}"))
        }
        _ => None,
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            // Its checks are for authors of engines, who want every new one.
            true if path.ends_with("conformance") => {}
            true => files(&path, found),
            false if path.extension().is_some_and(|ext| ext == "rs") => found.push(path),
            false => {}
        }
    }
}

#[test]
fn the_list_of_public_items_is_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let kept = root.join("tests/public_items.txt");
    let mut sources = Vec::new();
    files(&root.join("src"), &mut sources);
    let now: BTreeSet<_> = sources
        .iter()
        .flat_map(|path| items(&std::fs::read_to_string(path).unwrap()))
        .collect();
    if std::env::var_os("LEASEHOLD_PUBLIC_KEEP").is_some() {
        let text: String = now.iter().map(|item| format!("{item}\n")).collect();
        return std::fs::write(kept, text).unwrap();
    }
    let before = std::fs::read_to_string(kept).unwrap();
    let before: BTreeSet<_> = before.lines().map(str::to_owned).collect();
    let gone: Vec<_> = before.difference(&now).collect();
    let new: Vec<_> = now.difference(&before).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "the public API changed: gone {gone:#?}, new {new:#?}. If that is meant, write the list anew with \
         LEASEHOLD_PUBLIC_KEEP=1, and the change into CHANGELOG.md"
    );
}

#[test]
fn items_are_read_from_source() {
    let source = "\
pub struct A(u8);
#[non_exhaustive]
pub enum B {
    /// One.
    One,
    Of(Vec<u8>),
    Two {
        of: u8,
    },
}
impl A {
    pub fn long(
        &self,
        more: u8,
    ) -> u8 {
        pub_is_no_word()
    }
    pub(crate) fn hidden(&self) {}
    fn private(&self) {}
}
impl Clone for A {
    fn clone(&self) -> Self {}
}
#[cfg(test)]
mod tests {
    pub fn not_this() {}
}
";
    let expected = [
        "pub struct A",
        "#[non_exhaustive] pub enum B",
        "enum B: One",
        "enum B: Of(Vec<u8>)",
        "enum B: Two",
        "impl A: pub fn long(&self, more: u8) -> u8",
    ];
    assert_eq!(items(source), expected);
}
