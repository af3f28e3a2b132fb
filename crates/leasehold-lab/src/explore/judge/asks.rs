//! From a call to its answer.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::{Micros, RW_CAPACITY};
use leasehold::{Error, ErrorKind};

use super::super::program::{Kind, Patience, Terms, Want};
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
    /// The owner.
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
    pub(super) ended: Vec<u64>,
    /// The outer hold of the same holder when this began: its id and fence.
    pub(super) outer: Option<(u64, u64)>,
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
        let reads = ask.want == Want::Read;
        ask.ended = ask
            .names
            .iter()
            .map(|name| state.lines[*name].ended(reads))
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

    /// A request may be in the way for as long as its release takes.
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
        let now = self.now();
        // A short lease that ended without an answer says nothing to a task that waits for a longer one.
        let gave_up = ask.patience != Patience::Wait || ask.terms.twentieths < 20;
        for name in &ask.names {
            let line = &mut self.lines[*name];
            if gave_up {
                line.left[ask.client] = now;
            }
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
                asked: ask.id,
            };
            let first = self.reentered(ask, &hold);
            let again = first.is_some();
            // The call that asked first has the turn, also if it is told after one that re-entered it.
            let own = first.is_none_or(|(asked, _)| ask.id < asked);
            match first {
                Some((_, terms)) if !own => hold.terms = inner(terms),
                Some(_) => self.entered_before(&hold),
                None => {}
            }
            self.lines[name].last = Some((
                hold.fence,
                hold.client,
                hold.who,
                hold.terms,
                first.map_or(ask.id, |(asked, _)| asked.min(ask.id)),
            ));
            if self.is_valid(&hold) {
                self.see_turn(ask, &hold, again);
            }
            if let (true, Some(fact)) = (own, self.fact_mut(name, hold.fence)) {
                fact.turns += u64::from(!again);
                fact.lingers |= !ask.terms.linger.is_zero();
                fact.fixed |= !ask.terms.keep_alive;
            }
            self.lines[name].told = self.lines[name].told.max(hold.fence);
            ids.push(hold.id);
            self.holds.push(hold);
        }
        ids
    }

    /// Guards that were told before this one re-entered its turn: its terms are theirs.
    fn entered_before(&mut self, own: &Hold) {
        let twin = |other: &&mut Hold| other.fence == own.fence && other.name == own.name;
        for other in self.holds.iter_mut().filter(twin) {
            other.terms = inner(own.terms);
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

    /// Whether the call could never be granted: a reader that asks to write, a minimum beyond a fixed lease.
    fn is_invalid(&self, ask: &Ask) -> bool {
        let near = |client: usize, who: Who, name: usize| {
            client == ask.client && who == ask.who && ask.names.contains(&name)
        };
        // A turn of the same owner may not have been told yet.
        let holds = |hold: &Hold| near(hold.client, hold.who, hold.name);
        let asks = |other: &Ask| near(other.client, other.who, other.names[0]);
        let upgrades = ask.terms.again != super::Again::No && ask.want != Want::Read;
        let beyond = ask.terms.min_hold > self.lease_of(&ask.terms) && !ask.terms.keep_alive;
        beyond || (upgrades && (self.holds.iter().any(holds) || self.asks.iter().any(asks)))
    }

    fn failed(&mut self, ask: &Ask, error: &Error) {
        if error.kind() == ErrorKind::Invalid && !self.is_invalid(ask) {
            self.accuse(
                "P17",
                format!("a call was refused without a reason: {error}"),
            );
        }
        let hit = !self.program.hits.is_empty();
        // A front of the same client that fails takes those behind it along.
        let hasty = !self.near(self.program.world.lease / 20);
        let short = matches!(ask.patience, Patience::Within(time) if time.as_micros() as u64 <= self.prompt());
        let caused = hit
            || hasty
            || (short && error.kind() == ErrorKind::TimedOut)
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
}

/// The terms of a guard that re-entered: the first turn's are those of the grant; its minimum counts from its own begin.
const fn inner(terms: Terms) -> Terms {
    Terms {
        min_hold: Duration::ZERO,
        ..terms
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
    let signal = guard.loss_signal();
    Told(Box::new(move || signal.is_lost()))
}
