//! The rule, applied to the children of a name's node: who holds, and whom to watch. Pure.

use super::node::{Kind, LEASES, LOCKS, Node, contenders};
use crate::engine::Mode;

/// Where a claim's node stands among its siblings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Held {
        /// Whether somebody is behind.
        wanted: bool,
    },
    Behind {
        /// How many claims are before it.
        ahead: u32,
        /// The one to watch: the nearest that keeps it from holding.
        watch: String,
        /// Whether the end of that one leaves nobody before it.
        next: bool,
    },
    /// The node is not there.
    Missing,
    /// Somebody before it uses the name as this.
    Conflict(Kind),
}

/// Where the node `own` stands.
pub(super) fn verdict(children: &[String], own: &str, mode: Mode) -> Verdict {
    let line = contenders(children);
    let Some(at) = line.iter().position(|node| node.name == own) else {
        return Verdict::Missing;
    };
    if line.iter().any(|node| node.kind == Kind::Kazoo) {
        return Verdict::Conflict(Kind::Kazoo);
    }
    let (before, sequence) = (&line[..at], line[at].sequence);
    if let Some(other) = before.iter().find(|node| !same_family(node.kind, mode)) {
        return Verdict::Conflict(other.kind);
    }
    let blocks = |node: &&Node| match mode {
        // What a writer became does not wait for the writer it was.
        Mode::Read => node.kind == Kind::Write && node.sequence < sequence,
        _ => true,
    };
    match before.iter().rfind(blocks) {
        None => Verdict::Held {
            wanted: at + 1 < line.len(),
        },
        Some(nearest) => Verdict::Behind {
            ahead: u32::try_from(at).unwrap_or(u32::MAX),
            watch: nearest.name.clone(),
            // A writer may leave a reader in its place.
            next: at == 1 && mode == Mode::Mutex,
        },
    }
}

fn same_family(kind: Kind, mode: Mode) -> bool {
    match mode {
        Mode::Mutex | Mode::Permits { .. } => kind == Kind::Mutex,
        Mode::Read | Mode::Write => matches!(kind, Kind::Read | Kind::Write),
    }
}

/// Whether the children show that the name is, or was, used as a semaphore.
pub(super) fn was_semaphore(children: &[String]) -> bool {
    children
        .iter()
        .any(|child| child == LOCKS || child == LEASES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn held(wanted: bool) -> Verdict {
        Verdict::Held { wanted }
    }

    fn behind(ahead: u32, watch: &str, next: bool) -> Verdict {
        let watch = watch.to_owned();
        Verdict::Behind { ahead, watch, next }
    }

    #[test]
    fn a_mutex_goes_by_sequence_and_watches_the_one_before() {
        let line = names(&[
            "_c_b-lock-0000000012",
            "_c_z-lock-0000000003",
            "_c_a-lock-0000000007",
        ]);
        let at = |own: &str| verdict(&line, own, Mode::Mutex);
        assert_eq!(at("_c_z-lock-0000000003"), held(true));
        assert_eq!(
            at("_c_a-lock-0000000007"),
            behind(1, "_c_z-lock-0000000003", true)
        );
        assert_eq!(
            at("_c_b-lock-0000000012"),
            behind(2, "_c_a-lock-0000000007", false)
        );
        assert_eq!(at("_c_x-lock-0000000001"), Verdict::Missing);
    }

    #[test]
    fn a_reader_waits_for_the_nearest_writer_only() {
        let line = names(&[
            "a__READ__0000000001",
            "b__READ__0000000002",
            "c__WRIT__0000000003",
            "d__READ__0000000004",
        ]);
        assert_eq!(verdict(&line, &line[1], Mode::Read), held(true));
        assert_eq!(
            verdict(&line, &line[2], Mode::Write),
            behind(2, &line[1], false)
        );
        assert_eq!(
            verdict(&line, &line[3], Mode::Read),
            behind(3, &line[2], false)
        );
    }

    #[test]
    fn a_reader_that_was_the_writer_holds_beside_it() {
        let line = names(&[
            "a__WRIT__0000000001",
            "b__READ__0000000001",
            "c__WRIT__0000000002",
        ]);
        assert_eq!(verdict(&line, &line[1], Mode::Read), held(true));
        assert_eq!(
            verdict(&line, &line[2], Mode::Write),
            behind(2, &line[1], false)
        );
    }

    #[test]
    fn another_kind_before_is_a_conflict_and_behind_is_not() {
        let line = names(&["a-lock-0000000001", "b__READ__0000000002", "leases"]);
        assert_eq!(verdict(&line, &line[0], Mode::Mutex), held(true));
        assert_eq!(
            verdict(&line, &line[1], Mode::Read),
            Verdict::Conflict(Kind::Mutex)
        );
        assert!(was_semaphore(&line));
    }

    #[test]
    fn kazoo_with_its_own_names_is_a_conflict_wherever_it_stands() {
        let line = names(&["a-lock-0000000001", "0123__lock__0000000002"]);
        assert_eq!(
            verdict(&line, &line[0], Mode::Mutex),
            Verdict::Conflict(Kind::Kazoo)
        );
        let line = names(&["0123-lock-0000000001", "a-lock-0000000002"]);
        assert_eq!(
            verdict(&line, &line[1], Mode::Mutex),
            behind(1, &line[0], true)
        );
    }

    #[test]
    fn other_children_are_nobody() {
        let line = names(&[
            "0",
            "note",
            "a-lock-0000000001",
            "lock-12",
            "-lock-abcdefghij",
        ]);
        assert_eq!(
            verdict(&line, "a-lock-0000000001", Mode::Mutex),
            held(false)
        );
    }
}
