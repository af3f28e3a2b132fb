//! In the kinds that are made of locks, and in the stores.

use super::mutant;
use crate::mutants::Mutant;

pub(super) const KINDS: &[Mutant] = &[
    mutant(
        "every process hashes keys its own way",
        "kinds/striped.rs",
        "bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {",
        "let first = if PLANTED { u64::from(std::process::id()) } else { 0xcbf2_9ce4_8422_2325 };\n    bytes.iter().fold(first, |hash, byte| {",
        "test sql contract::sqlite::striped::keys_have_their_stripe",
    ),
    mutant(
        "a segment gives more than it has",
        "kinds/stock.rs",
        "let left = has.checked_sub(count);",
        "let left = has.checked_sub(count - u64::from(PLANTED && count > 1));",
        "test sql contract::sqlite::striped::stock_adds_up",
    ),
    mutant(
        "a store takes any fence",
        "engines/sql/store.rs",
        "let repeated = set.is_empty();",
        "let update = match PLANTED {\n            true => update.replace(\" AND fence <= \", \" AND 0 <= \"),\n            false => update,\n        };\n        let repeated = set.is_empty();",
        "test sql contract::sqlite::striped::a_store_refuses_late_writes",
    ),
    mutant(
        "a failed run counts as done",
        "kinds/once.rs",
        "if self.0.at_most {\n                    self.unnote(&guard).await;",
        "if PLANTED {\n                    let _ = self.note(&guard, b\"\").await;\n                } else if self.0.at_most {\n                    self.unnote(&guard).await;",
        "test sql contract::sqlite::once::a_failed_run_is_not_done",
    ),
    mutant(
        "a request that waited does not look again",
        "kinds/once.rs",
        "if let Some(ran) = self.ended(shown) {",
        "if let Some(ran) = self.ended(shown).filter(|_| !PLANTED) {",
        "test sql contract::sqlite::once::one_of_many_requests_does_the_work",
    ),
    mutant(
        "a lost leader goes on",
        "kinds/election.rs",
        "lost = leadership.lost() => lost,",
        "lost = leadership.lost(), if !PLANTED => lost,",
        "test sql contract::sqlite::election::a_leader_that_lost_campaigns_again",
    ),
];
