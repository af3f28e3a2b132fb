//! Invariants at the beginning of a turn.

use std::time::Duration;

use leasehold::engine::Micros;

use super::super::program::{Kind, Patience, Terms, Want};
use super::{Ask, AskId, Hold, State};

impl State {
    /// The call and the terms of the turn with the same fence, also if that has ended meanwhile.
    pub(super) fn reentered(&self, ask: &Ask, hold: &Hold) -> Option<(AskId, Terms)> {
        let twin = |other: &&Hold| other.fence == hold.fence && other.name == hold.name;
        let last = self.lines[hold.name]
            .last
            .filter(|(fence, client, who, ..)| {
                let same = (*fence, *client, *who) == (hold.fence, hold.client, hold.who);
                same && ask.terms.again != super::Again::No
            });
        let last = last.map(|(.., terms, asked)| (asked, terms));
        let twin = self.holds.iter().find(twin);
        twin.map(|twin| (twin.asked, twin.terms)).or(last)
    }

    /// Invariants of a turn that begins, valid.
    pub(super) fn see_turn(&mut self, ask: &Ask, hold: &Hold, again: bool) {
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
        let untold = |fact: &super::Fact| fact.evicted && !fact.told_end;
        if self.fact(hold.name, hold.fence).is_some_and(untold) {
            return;
        }
        let line = &self.lines[hold.name];
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
        self.see_turns(ask, hold);
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

    /// Tasks of a client that ask for all of a name are served in order of arrival. A try waits for none, a call that
    /// re-enters does not wait, and what is strict, or for several names, goes its own way; calls that fail, as those do
    /// whose lease is shorter than messages take, may be told late.
    fn see_turns(&mut self, ask: &Ask, hold: &Hold) {
        let whole =
            |want: Want| self.lines[hold.name].kind == Some(Kind::Mutex) || want != Want::Read;
        let shares = matches!(self.lines[hold.name].kind, Some(Kind::Permits(_)));
        let calm = !self.program.world.faults && self.program.hits.is_empty();
        let alone = |ask: &Ask| ask.names.len() == 1 && !ask.terms.strict && whole(ask.want);
        let passed = self.asks.iter().find(|other| {
            let before = other.id < ask.id && other.patience == Patience::Wait;
            let same = other.client == ask.client && other.names == ask.names;
            before && same && alone(other) && self.near(self.lease_of(&other.terms))
        });
        if let Some(other) = passed
            && calm
            && !shares
            && ask.patience != Patience::Try
            && ask.terms.again == super::Again::No
            && alone(ask)
        {
            let what = format!(
                "call {} of client {} passed call {}",
                ask.id, ask.client, other.id
            );
            self.accuse("P15", what);
        }
    }

    fn see_kept(&mut self, hold: &Hold, now: Micros) {
        let kept = &self.lines[hold.name].kept;
        let capacity = u64::from(super::capacity(self.lines[hold.name].kind));
        let broken = kept.iter().find(|(until, client, fence, weight)| {
            let fact = self.fact(hold.name, *fence);
            let same = fact.is_none_or(|fact| fact.has(hold.fence));
            let ended = fact.is_none_or(|fact| fact.evicted || fact.troubled);
            let life = self.lives[*client];
            let fits = u64::from(*weight) + u64::from(hold.weight) <= capacity;
            now < *until && !fits && !same && !ended && life.closing.is_none() && life.tasks > 0
        });
        if let Some((until, client, fence, _)) = broken {
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
}
