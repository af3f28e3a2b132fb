//! The trace of evictions: who took what from whom, when and why.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use super::dir::{Dir, io};
use super::error::Trouble;
use crate::clock::Micros;
use crate::identity::Identity;
use crate::name::Name;

/// Past this the log is set aside as `evicted.log.1`, in place of the one set aside before.
const LARGE: u64 = 256 * 1024;

/// Longer reasons are cut: they are for people.
const WHY: usize = 1024;

/// One line per eviction. The time is in seconds, as `date --date @SECONDS` takes it.
pub(super) fn leave(
    dir: &Dir,
    wall: Micros,
    name: &Name,
    fences: &[u64],
    by: &Identity,
    why: &str,
) -> Result<(), Trouble> {
    let path = dir.root.join("evicted.log");
    if std::fs::metadata(&path).is_ok_and(|log| log.len() > LARGE) {
        let _ = std::fs::rename(&path, dir.root.join("evicted.log.1"));
    }
    let why = super::push::cut(why, WHY);
    let command = &by.command;
    let line = format!(
        "@{} {by} ({command:?}) evicted {name:?} fences {fences:?}: {why:?}\n",
        wall / 1_000_000
    );
    let log = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path);
    let left = log.and_then(|mut log| log.write_all(line.as_bytes()));
    left.map_err(|error| io("write", &path, &error))
}
