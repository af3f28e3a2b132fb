//! The rule over the ordered nodes of a room: which claim holds, and which node to watch. Pure.

use super::{Kind, Node};
use crate::claim::{ClaimId, Mode};

/// Where a claim stands among the nodes of its room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines) enum Stand {
    Held {
        /// Whether a claim waits behind it.
        wanted: bool,
    },
    Behind {
        /// How many claims are before it.
        ahead: u32,
        /// The node to watch, or to read the capacity from: the nearest that keeps the claim from holding.
        node: String,
    },
    /// Its node does not exist.
    Missing,
    /// A node of this kind is in the way.
    Conflict(Kind),
}

/// The nodes that are claims, in their order. A writer and the reader it became have the same place.
fn line(nodes: &[Node]) -> Vec<&Node> {
    let mut line: Vec<_> = nodes
        .iter()
        .filter(|node| node.kind != Kind::Room)
        .collect();
    line.sort_by_key(|node| (node.order, node.kind == Kind::Read, &node.name));
    line
}

/// Where the node `own` of a mutex or a read/write lock stands.
pub(in crate::engines) fn stand(nodes: &[Node], own: &str, mode: Mode) -> Stand {
    let line = line(nodes);
    let Some(at) = line.iter().position(|node| node.name == own) else {
        return Stand::Missing;
    };
    if line.iter().any(|node| node.kind == Kind::Foreign) {
        return Stand::Conflict(Kind::Foreign);
    }
    let (before, order) = (&line[..at], line[at].order);
    if let Some(other) = before.iter().find(|node| !shares_lock(node.kind, mode)) {
        return Stand::Conflict(other.kind);
    }
    let blocks = |node: &&&Node| match mode {
        // The reader that a writer became does not wait for that writer.
        Mode::Read => node.kind == Kind::Write && node.order < order,
        _ => true,
    };
    match before.iter().rfind(blocks) {
        None => Stand::Held {
            wanted: at + 1 < line.len(),
        },
        Some(nearest) => Stand::Behind {
            ahead: count(at),
            node: nearest.name.clone(),
        },
    }
}

/// The kind of lock that the nodes are, where a claim of this mode cannot join them.
pub(in crate::engines) fn refuses(nodes: &[Node], mode: Mode) -> Option<Kind> {
    let line = line(nodes);
    let other = line.iter().find(|node| !shares_lock(node.kind, mode));
    other.map(|node| node.kind)
}

/// Where a claim with `own` permits stands among the permits that are held or asked for, of `capacity`.
pub(in crate::engines) fn permits(
    nodes: &[Node],
    claim: ClaimId,
    own: usize,
    capacity: u32,
) -> Stand {
    let mut permits = line(nodes);
    permits.retain(|node| node.kind == Kind::Permit);
    let (ours, mut others): (Vec<&Node>, Vec<&Node>) =
        permits.iter().partition(|node| node.claim == Some(claim));
    if ours.len() < own {
        return Stand::Missing;
    }
    let taken: u64 = permits.iter().map(|node| u64::from(node.weight)).sum();
    if taken <= u64::from(capacity) {
        return Stand::Held { wanted: false };
    }
    others.dedup_by_key(|node| node.claim);
    Stand::Behind {
        ahead: count(others.len()),
        node: others
            .first()
            .map_or_else(String::new, |node| node.name.clone()),
    }
}

/// Whether a node of a holder exists, and whether another is behind it.
pub(in crate::engines) fn behind(nodes: &[Node], own: &str) -> Option<bool> {
    let line = line(nodes);
    let at = line.iter().position(|node| node.name == own)?;
    Some(at + 1 < line.len())
}

fn shares_lock(kind: Kind, mode: Mode) -> bool {
    match mode {
        Mode::Mutex | Mode::Permits { .. } => kind == Kind::Mutex,
        Mode::Read | Mode::Write => matches!(kind, Kind::Read | Kind::Write),
    }
}

fn count(claims: usize) -> u32 {
    u32::try_from(claims).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, kind: Kind, order: i64) -> Node {
        Node {
            name: name.to_owned(),
            kind,
            order,
            claim: name.parse().ok().map(ClaimId::from_u128),
            weight: 1,
        }
    }

    fn held(wanted: bool) -> Stand {
        Stand::Held { wanted }
    }

    fn behind(ahead: u32, node: &str) -> Stand {
        let node = node.to_owned();
        Stand::Behind { ahead, node }
    }

    #[test]
    fn a_mutex_goes_by_order_and_watches_the_one_before() {
        let line = [("b", 12), ("z", 3), ("a", 7)].map(|(name, at)| node(name, Kind::Mutex, at));
        let at = |own: &str| stand(&line, own, Mode::Mutex);
        assert_eq!(at("z"), held(true));
        assert_eq!(at("a"), behind(1, "z"));
        assert_eq!(at("b"), behind(2, "a"));
        assert_eq!(at("x"), Stand::Missing);
        assert_eq!(super::behind(&line, "b"), Some(false));
        assert_eq!(super::behind(&line, "x"), None);
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_only() {
        let line = [
            node("a", Kind::Read, 1),
            node("b", Kind::Read, 2),
            node("c", Kind::Write, 3),
            node("d", Kind::Read, 4),
        ];
        assert_eq!(stand(&line, "b", Mode::Read), held(true));
        assert_eq!(stand(&line, "c", Mode::Write), behind(2, "b"));
        assert_eq!(stand(&line, "d", Mode::Read), behind(3, "c"));
    }

    #[test]
    fn a_reader_that_was_the_writer_holds_beside_it() {
        let line = [
            node("b", Kind::Read, 1),
            node("a", Kind::Write, 1),
            node("c", Kind::Write, 2),
        ];
        assert_eq!(stand(&line, "b", Mode::Read), held(true));
        assert_eq!(stand(&line, "c", Mode::Write), behind(2, "b"));
    }

    #[test]
    fn another_kind_before_is_a_conflict_and_behind_is_not() {
        let line = [
            node("a", Kind::Mutex, 1),
            node("b", Kind::Read, 2),
            node("leases", Kind::Room, i64::MAX),
        ];
        assert_eq!(stand(&line, "a", Mode::Mutex), held(true));
        assert_eq!(stand(&line, "b", Mode::Read), Stand::Conflict(Kind::Mutex));
        assert_eq!(stand(&line[..1], "a", Mode::Mutex), held(false));
        let line = [node("a", Kind::Mutex, 1), node("k", Kind::Foreign, 2)];
        let foreign = Stand::Conflict(Kind::Foreign);
        assert_eq!(stand(&line, "a", Mode::Mutex), foreign);
        assert_eq!(refuses(&line, Mode::Mutex), Some(Kind::Foreign));
        assert_eq!(refuses(&line[..1], Mode::Mutex), None);
        assert_eq!(refuses(&line[..1], Mode::Write), Some(Kind::Mutex));
    }

    #[test]
    fn permits_are_counted_and_other_nodes_are_not() {
        let nodes = [
            node("1", Kind::Permit, 4),
            node("2", Kind::Permit, 5),
            node("2", Kind::Permit, 6),
            node("a", Kind::Mutex, 1),
        ];
        let [one, two] = [1, 2].map(ClaimId::from_u128);
        assert_eq!(permits(&nodes, one, 1, 3), held(false));
        assert_eq!(permits(&nodes, two, 2, 2), behind(1, "1"));
        assert_eq!(permits(&nodes, one, 1, 2), behind(1, "2"));
        assert_eq!(permits(&nodes, two, 3, 9), Stand::Missing);
        let heavy = Node {
            weight: 3,
            ..node("3", Kind::Permit, 7)
        };
        let nodes = [node("1", Kind::Permit, 4), heavy];
        assert_eq!(permits(&nodes, one, 1, 4), held(false));
        assert_eq!(permits(&nodes, one, 1, 3), behind(1, "3"));
    }
}
