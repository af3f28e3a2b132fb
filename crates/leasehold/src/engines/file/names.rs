//! The file name of a lock's name.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::name::Name;

/// How much of the name people can still read in the file name.
const READABLE: usize = 40;

/// How much of the digest is kept: 160 bits.
const DIGEST: usize = 20;

/// Something to read and a digest to tell apart: at most 81 bytes, lower case only.
///
/// The digest is SHA-256 because every build and every version must map a name to the same file for ever; the hash of
/// the standard library promises no such thing. The file holds the whole name, so even a collision would be noticed.
pub(super) fn file_name(name: &Name) -> String {
    let readable = name.as_str().chars().take(READABLE);
    let mut file: String = readable.map(plain).collect();
    file.push('.');
    for byte in &Sha256::digest(name.as_str().as_bytes())[..DIGEST] {
        let _ = write!(file, "{byte:02x}");
    }
    file
}

fn plain(c: char) -> char {
    match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || c == '-' => c,
        _ => '_',
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(name: &str) -> String {
        file_name(&Name::new(name).unwrap())
    }

    #[test]
    fn twins_have_files_of_their_own() {
        let mut names: Vec<String> = [
            "stock", "Stock", "STOCK", "é", "e\u{301}", "..", ".", "/", "a/b", "a_b", "a%2fb",
            "a%2Fb", "{a}b", "a b", "_", "ſ", "s", "K", "\u{212a}",
        ]
        .map(str::to_owned)
        .into();
        names.push("x".repeat(512));
        names.push("x".repeat(511));
        names.push("x".repeat(511) + "X");
        let files: std::collections::BTreeSet<_> = names.iter().map(|name| of(name)).collect();
        assert_eq!(files.len(), names.len());
    }

    #[test]
    fn a_name_keeps_its_file_for_ever() {
        assert_eq!(
            of("Stock:42"),
            "stock_42.fff8d098b1eaaf29c1c5a6112d40b797ba1ca4d3"
        );
    }

    proptest! {
        #[test]
        fn every_file_name_is_plain_and_short(name in "\\PC{1,120}") {
            let file = of(&name);
            prop_assert!(file.len() <= 81);
            prop_assert!(file.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase() || "-_.".contains(c)));
            prop_assert!(!file.starts_with('.'));
            prop_assert_eq!(file.to_lowercase(), file);
        }

        #[test]
        fn different_names_never_meet(a in "\\PC{1,60}", b in "\\PC{1,60}") {
            prop_assert_eq!(a == b, of(&a) == of(&b));
        }
    }
}
