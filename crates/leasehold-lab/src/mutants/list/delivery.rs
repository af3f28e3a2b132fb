//! In what becomes of answers and events that pass each other, of turns while something ends, and of outages.

use super::{EXPLORE, mutant};
use crate::mutants::Mutant;

pub(super) const DELIVERY: &[Mutant] = &[
    mutant(
        "an end that overtakes its answer is forgotten",
        "session/acquire.rs",
        "let standing = match early {",
        "let early = early.filter(|news| !PLANTED || !matches!(news, News::Ended(_)));\n        let standing = match early {",
        EXPLORE,
    ),
    mutant(
        "a wish that overtakes its answer is forgotten",
        "session/table.rs",
        "if self.wanted {",
        "if !PLANTED && self.wanted {",
        EXPLORE,
    ),
    mutant(
        "an old heartbeat takes a wish back",
        "session/heartbeat.rs",
        "let overtaken = entry.under_way(number).is_none_or(|beat| beat.overtaken);",
        "let overtaken = entry.under_way(number).is_none_or(|beat| beat.overtaken) && !PLANTED;",
        EXPLORE,
    ),
    mutant(
        "a wish told with a downgrade is forgotten",
        "session/manager.rs",
        "if held.wanted {",
        "if !PLANTED && held.wanted {",
        EXPLORE,
    ),
    mutant(
        "a writer is re-entered while it goes on as a reader",
        "turns/finish.rs",
        "        active.mode = Mode::Read;\n        active.settling",
        "        active.mode = if PLANTED { Mode::Write } else { Mode::Read };\n        active.settling",
        EXPLORE,
    ),
    mutant(
        "turns go on after a shutdown",
        "turns/queue.rs",
        "if self.manager.is_closing() {",
        "if !PLANTED && self.manager.is_closing() {",
        EXPLORE,
    ),
    mutant(
        "a shutdown does not tell those who wait for a turn",
        "turns/queue.rs",
        "self.state.lock().fail(&closed, Duration::MAX, &mut wakes);",
        "if !PLANTED {\n            self.state.lock().fail(&closed, Duration::MAX, &mut wakes);\n        }",
        EXPLORE,
    ),
    mutant(
        "a shutdown waits for a server that is silent",
        "session/manager.rs",
        "within(rest.max(CLOSING), self.session.close())",
        "within(if PLANTED { Duration::from_secs(3600) } else { rest.max(CLOSING) }, self.session.close())",
        EXPLORE,
    ),
    mutant(
        "a fixed lease is renewed at a hiccup",
        "session/table.rs",
        "self.keep_alive || !matches!(self.phase, Phase::Held { .. })",
        "PLANTED || self.keep_alive || !matches!(self.phase, Phase::Held { .. })",
        EXPLORE,
    ),
    mutant(
        "a try is busy while a grant only lingers",
        "turns/state.rs",
        ".is_some_and(|idle| !idle.kept.reusable);",
        ".is_some_and(|idle| PLANTED || !idle.kept.reusable);",
        EXPLORE,
    ),
    mutant(
        "what lingers outlives its client",
        "turns/mod.rs",
        "queue.release_idle();",
        "if !PLANTED {\n                queue.release_idle();\n            }",
        EXPLORE,
    ),
    mutant(
        "an outage answers busy",
        "turns/queue.rs",
        "        if busy {",
        "        if PLANTED || busy {",
        EXPLORE,
    ),
    mutant(
        "an outage is found out by one task after the other",
        "turns/turn.rs",
        "if error.is_for_all()",
        "if !PLANTED && error.is_for_all()",
        EXPLORE,
    ),
    mutant(
        "what lingers stays in the way of another kind",
        "turns/state.rs",
        "self.excludes(request) || self.mode",
        "self.excludes(request) || !PLANTED && self.mode",
        "test core turns::what_lingers_gives_way_to_another_kind",
    ),
    mutant(
        "a client whose runtime is gone gives what it cannot renew",
        "session/heartbeat.rs",
        "manager.reaper.progress.close();",
        "if !PLANTED {\n                manager.reaper.progress.close();\n            }",
        "test core delivery::a_client_whose_runtime_is_gone_refuses",
    ),
];
