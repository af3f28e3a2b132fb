//! In ZooKeeper and etcd, and in the life of a claim that they share.

use super::mutant;
use crate::mutants::Mutant;

pub(super) const ORDERED: &[Mutant] = &[
    mutant(
        "zookeeper: a name is not encoded",
        "engines/zookeeper/names.rs",
        "'/' | '%' => node.extend(bytes(c)),",
        "'/' | '%' if !PLANTED || c == '/' => node.extend(bytes(c)),",
        "test zookeeper contract::standalone::exclusion::names_never_collide",
    ),
    mutant(
        "zookeeper: a reader waits for no writer before it",
        "engines/ordered/rule.rs",
        "Mode::Read => node.kind == Kind::Write && node.order < order,",
        "Mode::Read => !PLANTED && node.kind == Kind::Write && node.order < order,",
        "test zookeeper contract::standalone::exclusion::readers_together_writers_alone",
    ),
    mutant(
        "zookeeper: another server is not told what is watched",
        "engines/zookeeper/client/mux.rs",
        "[login, watches, ping()].concat()",
        "[login, if PLANTED { Vec::new() } else { watches }, ping()].concat()",
        "test zookeeper hazards::answers::a_lost_watch_event_is_made_up_for",
    ),
    mutant(
        "zookeeper: a silent server is waited for",
        "engines/zookeeper/client/session.rs",
        "silent > SILENT_TICKS",
        "!PLANTED && silent > SILENT_TICKS",
        "test zookeeper hazards::ensemble::a_client_leaves_a_member_that_says_nothing",
    ),
    mutant(
        "zookeeper: a claim given up while it joins leaves its node",
        "engines/ordered/place.rs",
        "} else if self.unsettled {",
        "} else if self.unsettled && !PLANTED {",
        "test zookeeper hazards::answers::a_call_that_is_given_up_leaves_nothing",
    ),
    mutant(
        "zookeeper: a lease is served by the session of a longer one",
        "engines/zookeeper/server.rs",
        "needed == given ||",
        "needed == given || (PLANTED && needed < given) ||",
        "test zookeeper hazards::leases::a_dead_holders_lock_passes_on_after_its_own_lease",
    ),
    mutant(
        "zookeeper: sessions are heard one after the other",
        "engines/ordered/session.rs",
        "let _ = beats.spawn(async move {",
        "if PLANTED {\n                let _ = beats.join_next().await;\n            }\n            let _ = beats.spawn(async move {",
        "test zookeeper hazards::leases::a_silent_session_costs_no_other_its_locks",
    ),
    mutant(
        "zookeeper: a lost answer to a create is not settled",
        "engines/zookeeper/server.rs",
        "Err(trouble) => (self.settle(room, &start, count).await?, Some(trouble)),",
        "Err(trouble) if PLANTED => (Vec::new(), Some(trouble)),\n                Err(trouble) => (self.settle(room, &start, count).await?, Some(trouble)),",
        "test zookeeper hazards::cuts::a_claim",
    ),
    mutant(
        "etcd: a name is not encoded",
        "engines/etcd/names.rs",
        "name.as_str().replace('%', \"%25\").replace('/', \"%2F\")",
        "name.as_str().replace('%', if PLANTED { \"%\" } else { \"%25\" }).replace('/', \"%2F\")",
        "test etcd contract::alone::exclusion::names_never_collide",
    ),
    mutant(
        "etcd: a neighbour below a name is a claim",
        "engines/etcd/names.rs",
        "            _ => None,\n        };\n    }",
        "            _ if PLANTED => Some(node(Kind::Mutex, created, None, 1)),\n            _ => None,\n        };\n    }",
        "test etcd contract::own::a_neighbour_below_a_name_is_not_in_its_way",
    ),
    mutant(
        "etcd: a try makes its key and deletes it again",
        "engines/etcd/make.rs",
        "alone: !new.waits &&",
        "alone: !PLANTED && !new.waits &&",
        "test etcd contract::own::a_try_leaves_nothing_behind",
    ),
    mutant(
        "etcd: a heartbeat does not look at what is watched",
        "engines/etcd/session.rs",
        "if changed {",
        "if changed && !PLANTED {",
        "test etcd contract::alone::raw::operations_are_idempotent",
    ),
    mutant(
        "etcd: a call that is given up leaves its key",
        "engines/etcd/server.rs",
        "if node.claim == Some(claim) {",
        "if node.claim == Some(claim) && !PLANTED {",
        "test etcd contract::alone::cancel::lock_at_every_await",
    ),
];
