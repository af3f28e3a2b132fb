//! In what becomes of answers and events that pass each other, of turns while something ends, and of outages.

use super::{EXPLORE, mutant};
use crate::mutants::Mutant;

pub(super) const DELIVERY: &[Mutant] = &[
    mutant(
        "an end that overtakes its answer is forgotten",
        "session/asking.rs",
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
        "session/keeper.rs",
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
        "turns/local.rs",
        "if self.keeper.is_closing() {",
        "if !PLANTED && self.keeper.is_closing() {",
        EXPLORE,
    ),
    mutant(
        "a shutdown does not tell those who wait for a turn",
        "turns/local.rs",
        "self.state.lock().fail(&closed, Duration::MAX, &mut wakes);",
        "if !PLANTED {\n            self.state.lock().fail(&closed, Duration::MAX, &mut wakes);\n        }",
        EXPLORE,
    ),
    mutant(
        "a shutdown waits for a server that is silent",
        "session/keeper.rs",
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
        "local.give_up_idle();",
        "if !PLANTED {\n                local.give_up_idle();\n            }",
        EXPLORE,
    ),
    mutant(
        "an outage answers busy",
        "turns/local.rs",
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
];
