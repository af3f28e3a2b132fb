//! What is stored in a key, and what the keys of a room stand for.

use super::names;
use super::views::Dir;
use crate::engine::Clock;
use crate::engines::ordered::{Fail, Kind, Node};
use crate::error::ErrorKind;

/// The directory of a room: all but its last part.
pub(super) fn dir_of(room: &str) -> &str {
    let end = room.trim_end_matches('/').rfind('/');
    end.map_or("", |end| &room[..=end])
}

/// The claims of a room, in their order.
pub(super) fn nodes(room: &str, keys: &Dir) -> Vec<Node> {
    let nodes = keys
        .entries
        .values()
        .filter_map(|entry| names::node(room, entry));
    let mut nodes: Vec<_> = nodes.collect();
    nodes.sort_by_key(|node| node.order);
    nodes
}

pub(super) fn number_of(index: u64) -> Result<i64, Fail> {
    let what = format!("Consul counts {index} changes, which is more than fences have room for");
    i64::try_from(index).map_err(|_| Fail::Refused(ErrorKind::Unavailable, what))
}

pub(super) fn now() -> u64 {
    Clock::boot().wall() / 1_000
}

/// What is stored: when the claim came, in milliseconds of its process's clock, and its data. Consul keeps no times.
pub(super) fn stamp(since: u64, data: &[u8]) -> Vec<u8> {
    let mut value = format!("{since}\n").into_bytes();
    value.extend_from_slice(data);
    value
}

pub(super) fn unstamp(value: &[u8]) -> (u64, &[u8]) {
    let stamped = || {
        let end = value.iter().position(|byte| *byte == b'\n')?;
        let since = std::str::from_utf8(&value[..end]).ok()?.parse().ok()?;
        Some((since, &value[end + 1..]))
    };
    stamped().unwrap_or((0, value))
}

/// A room beside the one that was asked for, with claims in it.
pub(super) fn room_node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        kind: Kind::Room,
        order: i64::MAX,
        claim: None,
        weight: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        assert_eq!(unstamp(&stamp(7, b"a\nb")), (7, &b"a\nb"[..]));
        assert_eq!(unstamp(b"plain"), (0, &b"plain"[..]));
        assert_eq!(dir_of("p/0/name/line/"), "p/0/name/");
    }
}
