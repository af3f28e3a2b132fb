//! What has to hold in the engine: its order, what it says when it is asked twice, and what it shows.

use leasehold::Fence;
use leasehold::engine::{ClaimId, LineView, Standing};

use super::{Fact, Judge, State};

impl Judge {
    /// What the engine shows, at one moment.
    pub fn shown(&self, views: &[LineView]) {
        self.state().see_shown(views);
    }

    /// What the engine answered to a call, and to the same call once more.
    pub fn repeated(&self, what: &str, id: ClaimId, first: &Standing, again: &Standing) {
        let same = match (first, again) {
            (Standing::Held(one), Standing::Held(other)) => {
                (one.fence, one.block) == (other.fence, other.block)
            }
            _ => std::mem::discriminant(first) == std::mem::discriminant(again),
        };
        if !same {
            let what = format!("a {what} of {id:?} was answered {first:?}, and again {again:?}");
            self.accuse("P23", what);
        }
    }
}

impl State {
    /// A claim was granted: what has waited for longer and is not granted with it was passed.
    pub(super) fn see_granted(&mut self, id: ClaimId) {
        let order = self.order;
        let Some(granted) = self.facts.get_mut(&id) else {
            return;
        };
        granted.passed = None;
        let joined = granted.waits.take().unwrap_or(order);
        let (name, client) = (granted.name, granted.client);
        let waits =
            |fact: &&mut Fact| fact.name == name && fact.waits.is_some_and(|since| since < joined);
        for fact in self.facts.values_mut().filter(waits) {
            fact.passed = Some(client);
        }
    }

    /// A claim waits, says the engine: none that came after it holds.
    pub(super) fn see_waiting(&mut self, id: ClaimId) {
        let order = self.order;
        let Some(fact) = self.facts.get_mut(&id) else {
            return;
        };
        let _ = fact.waits.get_or_insert(order);
        if let Some(by) = fact.passed {
            let what = format!(
                "a claim of client {} for {} waits, and one of client {by} that came later was granted",
                fact.client,
                super::super::name(fact.name)
            );
            self.accuse("P4", what);
        }
    }

    /// Every guard that is valid is shown as held by its client.
    fn see_shown(&mut self, views: &[LineView]) {
        let hidden = self.holds.iter().find(|hold| {
            let fact = self.fact(hold.name, hold.fence);
            let Some(fact) = fact.filter(|fact| !fact.ended) else {
                return false;
            };
            let name = super::super::name(hold.name);
            let view = views.iter().find(|view| view.name.as_str() == name);
            let mut holders = view.into_iter().flat_map(|view| &view.holders);
            let shown = holders.any(|claim| {
                let fence = claim.fence.map(Fence::get);
                let who = claim.who.as_ref().map(|who| who.command.as_str());
                fence == Some(fact.first())
                    && who == Some(&super::super::client(hold.client))
                    && claim.since <= claim.until
            });
            !shown && self.is_valid(hold)
        });
        if let Some(hold) = hidden {
            let what = format!(
                "fence {} of client {} is valid, and a look at the engine does not show it",
                hold.fence, hold.client
            );
            self.accuse("P20", what);
        }
    }
}
