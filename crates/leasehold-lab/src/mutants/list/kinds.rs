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
        "kinds/election/mod.rs",
        "lost = leadership.lost() => lost,",
        "lost = leadership.lost(), if !PLANTED => lost,",
        "test sql contract::sqlite::election::a_leader_that_lost_campaigns_again",
    ),
    mutant(
        "a miss that waited does not look again",
        "kinds/cached/fetch.rs",
        "let changed = judged.is_none() || found.written != judged;",
        "let changed = !PLANTED && (judged.is_none() || found.written != judged);",
        "test sql contract::sqlite::cached::one_of_many_misses_loads",
    ),
    mutant(
        "a late loader tells what it loaded",
        "kinds/cached/fetch.rs",
        "Err(error) if error.kind() == ErrorKind::Lost => self.instead(guard, error).await,",
        "Err(error) if error.kind() == ErrorKind::Lost && !PLANTED => {\n                self.instead(guard, error).await\n            }",
        "test sql contract::sqlite::cached::a_late_loader_writes_nothing",
    ),
    mutant(
        "all reload an old value",
        "kinds/cached/mod.rs",
        "let looking = due.then(|| held.begin_look()).flatten();",
        "let looking = due.then(|| held.begin_look()).flatten();\n        if PLANTED && held.is_due(self.layer.now()) {\n            let guard = self.lock().lock().await?;\n            let _ = guard.release().await;\n        }",
        "test sql contract::sqlite::cached::the_old_value_is_told_while_one_reloads",
    ),
    mutant(
        "a latch opens one count too soon",
        "kinds/latch.rs",
        "if looks.bear(self.left().await)? == Some(0) {",
        "if looks.bear(self.left().await)?.is_some_and(|left| left <= u32::from(PLANTED)) {",
        "test sql contract::sqlite::meeting::a_latch_opens_for_all_who_wait",
    ),
    mutant(
        "a dead member has arrived",
        "kinds/barrier/mod.rs",
        "if record.fences.iter().all(there) {",
        "if PLANTED || record.fences.iter().all(there) {",
        "test sql contract::sqlite::meeting::a_dead_member_breaks_it",
    ),
    mutant(
        "the first to arrive goes",
        "kinds/barrier/mod.rs",
        "Record { open, .. } if open == generation => {}",
        "Record { open, .. } if open == generation && PLANTED => return Ok(()),\n                Record { open, .. } if open == generation => {}",
        "test sql contract::sqlite::meeting::all_arrive_and_all_go",
    ),
];
