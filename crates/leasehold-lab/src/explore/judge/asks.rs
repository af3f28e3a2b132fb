//! From a call to its answer.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{Micros, RW_CAPACITY};
use leasehold::{Error, ErrorKind};

use super::super::program::{Fate, Kind, Patience, Terms, Want};
use super::{Hold, Judge, State, Taken, Told, Who};

/// Identifies a call.
pub type AskId = u64;

/// A call that has not ended.
#[derive(Debug)]
pub struct Ask {
    /// Identifies it.
    pub id: AskId,
    /// Of which client.
    pub client: usize,
    /// Of whom.
    pub who: Who,
    /// For which names.
    pub names: Vec<usize>,
    /// For how much of them.
    pub want: Want,
    /// How long it waits.
    pub patience: Patience,
    /// On which terms.
    pub terms: Terms,
    pub(super) began: Micros,
    /// Nothing was in the way of a try when it began, and the stamps of the names then.
    quiet: bool,
    stamps: u64,
    /// The largest fence of each name whose turn was over when this began.
    ended: Vec<u64>,
    /// What the same holder had when this began: its id and fence.
    outer: Option<(u64, u64)>,
}

impl Ask {
    /// A call that begins.
    pub fn new(
        client: usize,
        who: Who,
        names: Vec<usize>,
        want: Want,
        patience: Patience,
        terms: Terms,
    ) -> Self {
        Self {
            id: 0,
            client,
            who,
            names,
            want,
            patience,
            terms,
            began: 0,
            quiet: false,
            stamps: 0,
            ended: Vec::new(),
            outer: None,
        }
    }
}

/// How a call ended.
#[derive(Debug)]
pub enum End<'a> {
    /// With guards.
    Granted(&'a Arc<Taken>),
    /// Busy.
    Busy,
    /// With an error.
    Failed(&'a Error),
    /// Its future was dropped.
    Dropped,
}

impl Judge {
    /// A call begins.
    pub fn begins(&self, mut ask: Ask) -> AskId {
        let state = &mut *self.state();
        let now = state.now();
        state.next += 1;
        ask.id = state.next;
        ask.began = now;
        let waits = |other: &Ask| other.names.iter().any(|name| ask.names.contains(name));
        let holds = |hold: &Hold| ask.names.contains(&hold.name);
        let cool = |name: &usize| state.lines[*name].cool[ask.client] <= now;
        ask.quiet = !state.asks.iter().any(waits)
            && !state.holds.iter().any(holds)
            && ask.names.iter().all(cool);
        for name in &ask.names {
            state.lines[*name].stamp += 1;
        }
        ask.stamps = state.stamps(&ask.names);
        ask.ended = ask
            .names
            .iter()
            .map(|name| state.lines[*name].ended)
            .collect();
        let mine = |hold: &&Hold| {
            hold.who == ask.who
                && hold.client == ask.client
                && hold.name == ask.names[0]
                && !hold.downgraded
        };
        let outer = state
            .holds
            .iter()
            .filter(mine)
            .find(|hold| state.is_valid(hold));
        ask.outer = outer.map(|hold| (hold.id, hold.fence));
        let id = ask.id;
        state.asks.push(ask);
        id
    }

    /// A call ends; the ids of the guards it got.
    pub fn ends(&self, id: AskId, end: &End<'_>) -> Vec<u64> {
        let state = &mut *self.state();
        let Some(index) = state.asks.iter().position(|ask| ask.id == id) else {
            return Vec::new();
        };
        let ask = state.asks.remove(index);
        if !matches!(end, End::Granted(_)) {
            state.cools(&ask);
        }
        match end {
            End::Granted(taken) => return state.granted(&ask, taken),
            End::Busy => state.busy(&ask),
            End::Failed(error) => state.failed(&ask, error),
            End::Dropped => {}
        }
        Vec::new()
    }
}

impl State {
    fn stamps(&self, names: &[usize]) -> u64 {
        names.iter().map(|name| self.lines[*name].stamp).sum()
    }

    /// What was asked for may be in the way for as long as it takes to give it back.
    fn cools(&mut self, ask: &Ask) {
        let min_hold = ask.terms.min_hold.as_micros() as u64;
        let until = self.now() + self.slack() + min_hold;
        // It may have had its turn without being told, and a turn says for how long the grant is kept.
        let facts = self.facts.values_mut();
        for fact in facts.filter(|fact| fact.client == ask.client && ask.names.contains(&fact.name))
        {
            fact.lingers |= !ask.terms.linger.is_zero();
            if min_hold > 0 {
                fact.kept = fact.kept.max(until);
            }
        }
        for name in &ask.names {
            let line = &mut self.lines[*name];
            line.busy = line.busy.max(until);
            line.cool
                .iter_mut()
                .for_each(|cool| *cool = (*cool).max(until));
        }
    }

    fn granted(&mut self, ask: &Ask, taken: &Arc<Taken>) -> Vec<u64> {
        if let Taken::Many(many) = &**taken
            && let Err(error) = many.check()
        {
            self.accuse(
                "P18",
                format!("several names were granted, and one was lost: {error}"),
            );
        }
        let mut ids = Vec::new();
        for (index, guard) in taken.guards().into_iter().enumerate() {
            let name = super::super::number(guard.name().as_str());
            self.next += 1;
            self.granted += 1;
            let (weight, writes) = weight(self.lines[name].kind, ask.want);
            let mut hold = Hold {
                client: ask.client,
                who: ask.who,
                name,
                weight,
                writes,
                fence: guard.fence().get(),
                terms: ask.terms,
                since: self.now(),
                taken: Arc::downgrade(taken),
                index,
                told: told(guard),
                downgraded: false,
                lost: false,
                id: self.next,
            };
            let twin = |other: &&Hold| other.fence == hold.fence && other.name == name;
            let again = self.holds.iter().find(twin).map(|twin| twin.terms);
            // The first turn's terms are those of the grant.
            hold.terms = again.unwrap_or(hold.terms);
            let again = again.is_some();
            if self.is_valid(&hold) {
                self.see_turn(ask, &hold, again);
            }
            if let (false, Some(fact)) = (again, self.fact_mut(name, hold.fence)) {
                fact.turns += 1;
                fact.lingers |= !ask.terms.linger.is_zero();
            }
            self.lines[name].told = self.lines[name].told.max(hold.fence);
            ids.push(hold.id);
            self.holds.push(hold);
        }
        ids
    }

    /// What has to hold for a turn that begins, valid.
    fn see_turn(&mut self, ask: &Ask, hold: &Hold, again: bool) {
        let (now, line) = (self.now(), &self.lines[hold.name]);
        let outer = ask.outer.filter(|(id, _)| {
            self.holds
                .iter()
                .any(|hold| hold.id == *id && self.is_valid(hold))
        });
        if let Some((_, fence)) = outer
            && ask.terms.again != super::Again::No
            && ask.names.len() == 1
            && fence != hold.fence
            && line.kind == Some(Kind::Mutex)
        {
            return self.accuse(
                "P17",
                format!("its holder re-entered fence {fence} and got {}", hold.fence),
            );
        }
        if again {
            return;
        }
        let ended = ask
            .names
            .iter()
            .position(|name| *name == hold.name)
            .map_or(0, |at| ask.ended[at]);
        if hold.fence <= ended
            || (hold.weight == super::capacity(line.kind) && hold.fence <= line.told)
        {
            return self.accuse(
                "P6",
                format!(
                    "fence {} of {} came after {}",
                    hold.fence,
                    super::super::name(hold.name),
                    ended.max(line.told)
                ),
            );
        }
        self.see_kept(hold, now);
        self.see_bounds(hold, now);
        if let Some(closing) = self.lives[ask.client].closing
            && (ask.began > closing || now > closing + self.slack())
        {
            self.accuse(
                "P19",
                format!(
                    "client {} was shut down at {}, and got fence {}",
                    ask.client,
                    closing - self.start,
                    hold.fence
                ),
            );
        }
    }

    fn see_kept(&mut self, hold: &Hold, now: Micros) {
        let kept = &self.lines[hold.name].kept;
        let broken = kept.iter().find(|(until, client, fence)| {
            let fact = self.fact(hold.name, *fence);
            let same = fact.is_none_or(|fact| fact.has(hold.fence));
            let ended = fact.is_none_or(|fact| fact.evicted || fact.troubled);
            let life = self.lives[*client];
            now < *until && !same && !ended && life.closing.is_none() && life.tasks > 0
        });
        if let Some((until, client, fence)) = broken {
            let what = format!(
                "fence {} was granted {:?} before the minimum hold of fence {fence} of client {client} was over",
                hold.fence,
                Duration::from_micros(until - now)
            );
            self.accuse("P21", what);
        }
    }

    /// A grant that another client wants passes on within its bound; one that was asked for serves no other.
    fn see_bounds(&mut self, hold: &Hold, now: Micros) {
        let Some(fact) = self.fact(hold.name, hold.fence) else {
            return;
        };
        let turn = fact.turn(hold.fence);
        let shares = hold.weight < super::capacity(self.lines[hold.name].kind);
        if let Some((_, turns)) = fact.wanted.filter(|(when, _)| *when < now)
            && turn > turns
            && !shares
        {
            let granted = fact.granted.unwrap_or(now);
            let bound = u64::from(super::super::program::TURNS);
            let late = now > granted + super::super::BOUND.as_micros() as u64 + self.prompt();
            if turn >= bound || late {
                return self.accuse(
                    "P15",
                    format!("turn {turn} of a grant that another client wanted since turn {turns}"),
                );
            }
        }
        if let Some((_, turns)) = fact.asked.filter(|(when, _)| *when < now)
            && turn > turns
            && !shares
        {
            self.accuse(
                "P25",
                format!("turn {turn} of a grant that was asked for since turn {turns}"),
            );
        }
    }

    fn busy(&mut self, ask: &Ask) {
        let names: Vec<_> = ask
            .names
            .iter()
            .map(|name| super::super::name(*name))
            .collect();
        let closing = self.lives[ask.client].closing.is_some();
        if ask.quiet
            && ask.patience == Patience::Try
            && self.stamps(&ask.names) == ask.stamps
            && !closing
        {
            return self.accuse(
                "P12",
                format!(
                    "a try of client {} on {} was busy, and the name was free",
                    ask.client,
                    names.join("+")
                ),
            );
        }
        let now = self.now();
        if self.is_out(ask.client, ask.began, now) && !self.was_near(ask) && !closing {
            self.accuse(
                "P12",
                format!(
                    "client {} could not reach the engine for {}, and was told that it is busy",
                    ask.client,
                    names.join("+")
                ),
            );
        }
        let outer = ask.outer.filter(|(id, _)| {
            self.holds
                .iter()
                .any(|hold| hold.id == *id && self.is_valid(hold))
        });
        if outer.is_some()
            && ask.terms.again != super::Again::No
            && self.lines[ask.names[0]].kind == Some(Kind::Mutex)
            && ask.names.len() == 1
        {
            self.accuse(
                "P17",
                format!(
                    "the holder of {} asked again and was told that it is busy",
                    names.join("+")
                ),
            );
        }
    }

    /// Whether an outage of the client lasted from one moment to the other.
    fn is_out(&self, client: usize, from: Micros, to: Micros) -> bool {
        let micros = |time: Duration| time.as_micros() as u64;
        self.program.hits.iter().any(|hit| {
            let start = self.start + micros(hit.from);
            let covers = start <= from && to <= start + micros(hit.length);
            hit.client == client && matches!(hit.fate, Fate::Outage(_)) && covers
        })
    }

    /// Whether the client itself had, or asked for, the name before the call began or while it lasted.
    fn was_near(&self, ask: &Ask) -> bool {
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

    fn failed(&mut self, ask: &Ask, error: &Error) {
        let hit = !self.program.hits.is_empty();
        let caused = hit
            || self.lives[ask.client].closing.is_some()
            || error.kind() == ErrorKind::Invalid
            || (ask.names.len() > 1 && self.evictions > 0);
        if !caused && self.steady(self.lease_of(&ask.terms)) {
            self.accuse(
                "P5",
                format!("nothing had gone wrong, and a call failed: {error}"),
            );
        }
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
        // Who asks with a lease shorter than messages take may stand before others of its client for ever.
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
}

impl State {
    /// Who asks during an outage is told within the lease, whoever else of its client asks.
    fn see_outages(&mut self, name: usize) {
        let now = self.now();
        let untold = self.asks.iter().find(|ask| {
            let patience = self.lease_of(&ask.terms).as_micros() as u64 + self.prompt() + 30_000;
            ask.names == [name]
                && now > ask.began + patience
                && self.is_out(ask.client, ask.began, now)
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

/// How much of a line is asked for, and whether to write.
fn weight(kind: Option<Kind>, want: Want) -> (u32, bool) {
    match (kind, want) {
        (Some(Kind::ReadWrite), Want::Read) => (1, false),
        (Some(Kind::ReadWrite), _) => (RW_CAPACITY, true),
        (Some(Kind::Permits(of)), Want::Many(count)) => (count.min(of), false),
        _ => (1, false),
    }
}

fn told(guard: &leasehold::Guard) -> Told {
    let token = guard.cancellation_token();
    Told(Box::new(move || token.is_cancelled()))
}
