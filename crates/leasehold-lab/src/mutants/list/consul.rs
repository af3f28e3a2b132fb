//! In Consul.

use super::mutant;
use crate::mutants::Mutant;

pub(super) const CONSUL: &[Mutant] = &[
    mutant(
        "consul: a request that comes late makes its key",
        "engines/consul/gate.rs",
        "Op::CheckIndex(&gate, known),",
        "if PLANTED { Op::Get(&gate) } else { Op::CheckIndex(&gate, known) },",
        "test consul hazards::alone::a_request_that_comes_late_leaves_nothing",
    ),
    mutant(
        "consul: a name is not encoded",
        "engines/consul/names.rs",
        "match plain(byte) && !dots {",
        "match (PLANTED && byte == b'%') || (plain(byte) && !dots) {",
        "test consul contract::alone::exclusion::names_never_collide",
    ),
    mutant(
        "consul: a key without a session is a claim",
        "engines/consul/names.rs",
        "if entry.session.is_empty() || entry.flags",
        "if (!PLANTED && entry.session.is_empty()) || entry.flags",
        "test consul hazards::alone::a_key_without_a_session_is_no_claim",
    ),
    mutant(
        "consul: a session that is not renewed goes on",
        "engines/consul/session.rs",
        "Err(Trouble::Dead(_)) => self.over.cancel(),",
        "Err(Trouble::Dead(_)) if !PLANTED => self.over.cancel(),",
        "test consul hazards::alone::a_session_that_is_destroyed_is_told",
    ),
    mutant(
        "consul: one silent server is waited for",
        "engines/consul/client/mod.rs",
        "let _ = self.host.fetch_add(1, Ordering::Relaxed);",
        "let _ = self.host.fetch_add(usize::from(!PLANTED), Ordering::Relaxed);",
        "test consul hazards::three::a_client_leaves_a_member_that_says_nothing",
    ),
    mutant(
        "consul: a session leaves its keys",
        "engines/consul/session.rs",
        "\"Behavior\": \"delete\",",
        "\"Behavior\": (if PLANTED { \"release\" } else { \"delete\" }),",
        "test consul hazards::alone::a_session_that_ends_leaves_no_key",
    ),
    mutant(
        "consul: a shared key is taken whatever became of it since it was read",
        "engines/consul/shared/mutex.rs",
        "own.http.txn(&[check, same, lock]).await",
        "own.http.txn(&[check, if PLANTED { check } else { same }, lock]).await",
        "test consul hazards::shared::a_mutex_and_a_semaphore_of_one_name_are_not_both_held",
    ),
];
