//! The engine's answers about each claim, and which of them reached the client.

use std::time::Duration;

use leasehold::engine::{Claim, ClaimId, Ended, Event, Held, Micros, Standing};

use super::{Judge, State};

/// One claim, seen from outside.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) name: usize,
    first: Option<u64>,
    block: u64,
    /// Taken away, in the engine.
    pub(super) evicted: bool,
    /// Gone, in the engine.
    pub(super) ended: bool,
    /// The client was told that it is gone.
    pub(super) told_end: bool,
    /// Something went wrong with a call for this claim.
    pub(super) troubled: bool,
    /// When the client was told that it holds.
    pub(super) granted: Option<Micros>,
    /// The last time the engine said that it is wanted.
    wanted_said: u64,
    /// Since when the client knows that it is wanted, and the turns that had begun by then.
    pub(super) wanted: Option<(Micros, u64)>,
    /// Since when the client knows that it is asked for, and the turns that had begun by then.
    pub(super) asked: Option<(Micros, u64)>,
    /// How many turns were told to tasks.
    pub(super) turns: u64,
    /// When the last turn ended.
    pub(super) idle: Option<Micros>,
    /// Until when it is kept although no task uses it.
    pub(super) kept: Micros,
    /// Whether a turn asked for it to be kept for its client.
    pub(super) lingers: bool,
    /// Whether it was given back.
    left: bool,
    left_at: Option<Micros>,
    /// When giving it back failed, until it is tried again.
    refused: Option<Micros>,
    pub(super) client: usize,
    lease: Duration,
    /// Whether it ends with its first lease.
    pub(super) fixed: bool,
    /// Since when it waits in the engine, in the order of what the engine said; none once it holds.
    pub(super) waits: Option<u64>,
    /// Whose claim was granted since, though it came later.
    pub(super) passed: Option<usize>,
}

impl Fact {
    /// Whether a fence is of this claim's block.
    pub(super) fn has(&self, fence: u64) -> bool {
        self.first
            .is_some_and(|first| (first..first + self.block).contains(&fence))
    }

    /// The first fence of its block.
    pub(super) fn first(&self) -> u64 {
        self.first.unwrap_or(0)
    }

    /// Which turn of the grant has this fence.
    pub(super) fn turn(&self, fence: u64) -> u64 {
        fence - self.first.unwrap_or(fence)
    }

    fn holds(&mut self, held: &Held) {
        self.first = Some(held.fence.get());
        self.block = u64::from(held.block);
    }

    fn told_held(&mut self, now: Micros, made: u64, held: &Held) {
        let _ = self.granted.get_or_insert(now);
        if held.wanted {
            let _ = self.wanted.get_or_insert((now, self.turns));
        } else if made > self.wanted_said {
            self.wanted = None;
        }
    }
}

impl Judge {
    /// A client sends a claim.
    pub fn claims(&self, client: usize, claim: &Claim) {
        let state = &mut *self.state();
        let name = super::super::number(claim.name.as_str());
        let fact = || Fact {
            name,
            first: None,
            block: 0,
            evicted: false,
            ended: false,
            told_end: false,
            troubled: false,
            granted: None,
            wanted_said: 0,
            wanted: None,
            asked: None,
            turns: 0,
            idle: None,
            kept: 0,
            lingers: false,
            left: false,
            left_at: None,
            refused: None,
            client,
            lease: claim.lease,
            fixed: false,
            waits: None,
            passed: None,
        };
        let _ = state.facts.entry(claim.id).or_insert_with(fact);
    }

    /// A client gives a claim back.
    pub fn gives_back(&self, id: ClaimId) {
        let state = &mut *self.state();
        let now = state.now();
        if let Some(fact) = state.facts.get_mut(&id) {
            let _ = fact.left_at.get_or_insert(now);
            fact.left = true;
            fact.refused = None;
        }
    }

    /// The answer to that was an error.
    pub fn not_given_back(&self, id: ClaimId) {
        let state = &mut *self.state();
        let now = state.now();
        if let Some(fact) = state.facts.get_mut(&id) {
            fact.refused = Some(now);
        }
    }

    /// Something went wrong with a call for this claim.
    pub fn trouble(&self, id: ClaimId) {
        if let Some(fact) = self.state().facts.get_mut(&id) {
            fact.troubled = true;
        }
    }

    /// The engine made an answer; says in which order with what it said otherwise.
    pub fn engine_answers(&self, id: ClaimId, answer: Option<&Standing>) -> u64 {
        let state = &mut *self.state();
        state.order += 1;
        let order = state.order;
        match answer {
            Some(Standing::Held(held)) => state.engine_grants(id, held),
            Some(Standing::Waiting { .. }) => state.see_waiting(id),
            _ => {}
        }
        order
    }

    /// The engine made an event.
    pub fn engine_tells(&self, event: &Event) {
        let state = &mut *self.state();
        state.order += 1;
        match event {
            Event::Granted(id, held) => {
                state.engine_grants(*id, held);
            }
            Event::Wanted(id) => {
                if let Some(fact) = state.facts.get_mut(id) {
                    fact.wanted_said = state.order;
                }
            }
            Event::Ended(id, why) => {
                let evicted = matches!(why, Ended::Evicted { .. });
                state.evictions += u64::from(evicted);
                if let Some(fact) = state.facts.get_mut(id) {
                    fact.ended = true;
                    fact.evicted |= evicted;
                }
            }
            _ => {}
        }
    }

    /// An answer reaches the client.
    pub fn told(&self, id: ClaimId, made: u64, standing: Standing) {
        let state = &mut *self.state();
        let now = state.now();
        let Some(fact) = state.facts.get_mut(&id) else {
            return;
        };
        match standing {
            Standing::Held(held) => fact.told_held(now, made, &held),
            Standing::Gone => fact.told_end = true,
            _ => {}
        }
    }

    /// An event reaches the client.
    pub fn told_event(&self, event: &Event) {
        let state = &mut *self.state();
        let now = state.now();
        match event {
            Event::Granted(id, held) => {
                if let Some(fact) = state.facts.get_mut(id) {
                    let _ = fact.granted.get_or_insert(now);
                    if held.wanted {
                        let _ = fact.wanted.get_or_insert((now, fact.turns));
                    }
                }
            }
            Event::Wanted(id) => {
                if let Some(fact) = state.facts.get_mut(id) {
                    let _ = fact.wanted.get_or_insert((now, fact.turns));
                }
            }
            Event::Asked(id) => {
                if let Some(fact) = state.facts.get_mut(id) {
                    let _ = fact.asked.get_or_insert((now, fact.turns));
                }
            }
            Event::Ended(id, _) => {
                if let Some(fact) = state.facts.get_mut(id) {
                    fact.told_end = true;
                }
            }
            _ => {}
        }
    }
}

impl State {
    fn engine_grants(&mut self, id: ClaimId, held: &Held) {
        let Some(fact) = self.facts.get_mut(&id) else {
            return;
        };
        let new = !fact.has(held.fence.get());
        fact.holds(held);
        if new {
            self.see_granted(id);
        }
    }

    /// A guard whose client was told that the claim is gone is lost; one that was asked for knows it.
    pub(super) fn see_the_told(&mut self) {
        let mut bad = None;
        for hold in &self.holds {
            let Some(fact) = self.fact(hold.name, hold.fence) else {
                continue;
            };
            if fact.told_end && self.is_valid(hold) {
                let what = format!(
                    "client {} was told that fence {} of {} is gone, and its guard is valid",
                    hold.client,
                    hold.fence,
                    super::super::name(hold.name)
                );
                bad = Some(("P14", what));
            }
            let asked = hold
                .taken
                .upgrade()
                .is_none_or(|taken| taken.guards()[hold.index].is_release_requested());
            if fact.asked.is_some_and(|(when, _)| when < self.now())
                && !asked
                && self.is_valid(hold)
            {
                bad = Some((
                    "P25",
                    format!("fence {} was asked for, and its guard says no", hold.fence),
                ));
            }
        }
        if let Some((promise, what)) = bad {
            self.accuse(promise, what);
        }
    }

    /// Giving back goes on until it succeeds, or the lease has ended the claim.
    pub(super) fn see_given_back(&mut self) {
        let now = self.now();
        let given_up = self.facts.values().find(|fact| {
            let lease = fact.lease.as_micros() as u64;
            let pause = fact.refused.map(|refused| refused + PAUSE + self.prompt());
            let end = fact.left_at.map_or(0, |left| left + lease);
            let closing = self.lives[fact.client].closing.is_some();
            pause.is_some_and(|pause| now > pause && pause < end && now < end) && !closing
        });
        if let Some(fact) = given_up {
            let what = format!(
                "client {} could not give back {}, and does not go on trying",
                fact.client,
                super::super::name(fact.name)
            );
            self.accuse("P9", what);
        }
    }

    /// A grant that none uses is given back at once, unless it lingers and none else wants it.
    pub(super) fn see_idle_grants(&mut self) {
        let now = self.now();
        let idle = |fact: &&Fact| {
            let Some(idle) = fact.idle else { return false };
            let wanted = [fact.wanted, fact.asked]
                .into_iter()
                .flatten()
                .map(|(when, _)| when)
                .min();
            let due = match wanted {
                Some(wanted) => idle.max(wanted).max(fact.kept),
                None if fact.lingers => return false,
                None => idle.max(fact.kept),
            };
            let used = || {
                self.holds
                    .iter()
                    .any(|hold| hold.name == fact.name && fact.has(hold.fence))
            };
            let asked = || {
                self.asks
                    .iter()
                    .any(|ask| ask.client == fact.client && ask.names.contains(&fact.name))
            };
            let over = fact.left
                || fact.ended
                || fact.told_end
                || self.lives[fact.client].closing.is_some();
            let lease = fact.lease.as_micros() as u64;
            let expired = fact.fixed && fact.granted.is_some_and(|granted| now >= granted + lease);
            // A claim that was not renewed ends by itself.
            let over = over || expired || fact.troubled || !self.near(fact.lease);
            !over && now > due + AT_ONCE && !used() && !asked()
        };
        if let Some(fact) = self.facts.values().find(idle) {
            let promise = if fact.lingers { "P16" } else { "P9" };
            let what = format!(
                "client {} keeps a grant of {} that none uses and another may want",
                fact.client,
                super::super::name(fact.name)
            );
            self.accuse(promise, what);
        }
    }
}

/// The longest pause between two tries to give something back.
const PAUSE: Micros = 1_000_000;

/// How long giving back may take to begin: no message is waited for.
const AT_ONCE: Micros = 5_000;
