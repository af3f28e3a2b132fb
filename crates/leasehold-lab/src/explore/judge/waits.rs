//! Invariants while a call waits.

use std::time::Duration;

use leasehold::engine::Micros;

use super::super::program::Fate;
use super::{Ask, State};

impl State {
    /// Whether an outage of the client lasted from one moment to the other.
    pub(super) fn is_out(&self, client: usize, from: Micros, to: Micros) -> bool {
        let micros = |time: Duration| time.as_micros() as u64;
        self.program.hits.iter().any(|hit| {
            let start = self.start + micros(hit.from);
            let covers = start <= from && to <= start + micros(hit.length);
            hit.client == client && matches!(hit.fate, Fate::Outage(_)) && covers
        })
    }

    /// Whether the client itself had, or asked for, the name before the call began or while it lasted.
    pub(super) fn was_near(&self, ask: &Ask) -> bool {
        ask.names.iter().any(|name| {
            let line = &self.lines[*name];
            self.holds
                .iter()
                .any(|hold| hold.name == *name && hold.client == ask.client)
                || (line.used[ask.client] > 0 && line.used[ask.client] + self.slack() >= ask.began)
                || self.asks.iter().any(|other| {
                    other.client == ask.client
                        && other.names.contains(name)
                        && !self.is_out(other.client, other.began, self.now())
                })
        })
    }

    /// None waits long for a name that none has.
    pub(super) fn see_waits(&mut self, name: usize) {
        let now = self.now();
        let free_since = self.lines[name].busy;
        let held = self
            .holds
            .iter()
            .any(|hold| hold.name == name && !hold.lost);
        let several = self
            .asks
            .iter()
            .any(|ask| ask.names.len() > 1 && ask.names.contains(&name));
        // A task that asks with a lease shorter than messages take may stand before others of its client for ever.
        let hopeless =
            |ask: &Ask| ask.names.contains(&name) && !self.near(self.lease_of(&ask.terms));
        if held || several || self.is_sick(name) || self.asks.iter().any(hopeless) {
            return;
        }
        self.see_outages(name);
        let slack = self.slack();
        let stuck = self.asks.iter().find(|ask| {
            ask.names == [name]
                && now > free_since.max(ask.began) + slack
                && self.steady(self.lease_of(&ask.terms))
        });
        if let Some(ask) = stuck {
            let waited = Duration::from_micros(now - ask.began);
            self.accuse(
                "P5",
                format!(
                    "client {} has waited {waited:?} for {}, which is free",
                    ask.client,
                    super::super::name(name)
                ),
            );
        }
    }

    /// A request during an outage is answered within the lease, whatever other tasks of its client ask.
    pub(super) fn see_outages(&mut self, name: usize) {
        let now = self.now();
        let untold = self.asks.iter().find(|ask| {
            let patience = self.program.world.lease.as_micros() as u64 + self.prompt() + 30_000;
            // A task that was at the engine and lost patience lets the next begin.
            let since = ask.began.max(self.lines[name].left[ask.client]);
            ask.names == [name]
                && now > since + patience
                && self.is_out(ask.client, ask.began, now)
                && !self.was_near(ask)
        });
        if let Some(ask) = untold {
            let waited = Duration::from_micros(now - ask.began);
            self.accuse(
                "P12",
                format!(
                    "client {} has waited {waited:?} for {} in an outage, and was not told",
                    ask.client,
                    super::super::name(name)
                ),
            );
        }
    }
}
