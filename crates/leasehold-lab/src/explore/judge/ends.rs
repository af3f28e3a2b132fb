//! From a guard to its end, and from a shutdown to its own.

use std::sync::Arc;
use std::time::Duration;

use leasehold::engine::Micros;
use leasehold::{Error, Released};

use super::{Ask, Judge, State, Taken};

impl Judge {
    /// Guards are given back or dropped. Whether any of them was known to be lost.
    pub fn leaves(&self, ids: &[u64]) -> bool {
        let state = &mut *self.state();
        let mut lost = false;
        for id in ids {
            let Some(index) = state.holds.iter().position(|hold| hold.id == *id) else {
                continue;
            };
            lost |= !state.is_valid(&state.holds[index]);
            state.ends(index);
        }
        lost
    }

    /// The answer of a release.
    pub fn released(&self, lost: bool, answer: &Result<Released, Error>) {
        let state = &mut *self.state();
        if lost && matches!(answer, Ok(Released::Released)) {
            state.accuse(
                "P8",
                "a guard that was lost says that it was held until its release".into(),
            );
        }
    }

    /// A writer begins to go on as a reader: the engine may let readers in.
    pub fn downgrades(&self, ids: &[u64]) {
        let state = &mut *self.state();
        let holds = state.holds.iter_mut();
        holds
            .filter(|hold| ids.contains(&hold.id))
            .for_each(|hold| hold.weight = 1);
    }

    /// A writer went on as a reader: it writes no more.
    pub fn downgraded(&self, ids: &[u64], taken: &Arc<Taken>) {
        let state = &mut *self.state();
        let fence = taken.guards()[0].fence().get();
        let Some(hold) = state.holds.iter_mut().find(|hold| ids.contains(&hold.id)) else {
            return;
        };
        let before = hold.fence;
        hold.taken = Arc::downgrade(taken);
        hold.downgraded = true;
        hold.writes = false;
        hold.weight = 1;
        if before != fence {
            let what =
                format!("a writer with fence {before} went on as a reader with fence {fence}");
            state.accuse("P24", what);
        }
    }

    /// A shutdown begins.
    pub fn closes(&self, client: usize, patience: Duration) -> Micros {
        let state = &mut *self.state();
        let now = state.now();
        let _ = state.lives[client].closing.get_or_insert(now);
        let _ = state.lives[client].patience.get_or_insert(patience);
        now
    }

    /// A shutdown ended.
    pub fn closed(&self, client: usize, began: Micros, patience: Duration) {
        let state = &mut *self.state();
        let took = state.now() - began;
        state.lives[client].closed = true;
        if took > patience.as_micros() as u64 + state.prompt() + CLOSING {
            state.accuse(
                "P19",
                format!(
                    "a shutdown within {patience:?} took {:?}",
                    Duration::from_micros(took)
                ),
            );
        }
    }

    /// A task of a client ended, with its handle.
    pub fn task_ends(&self, client: usize) {
        self.state().lives[client].tasks -= 1;
    }

    /// The program does not come to an end: no promise, if a lease in it is shorter than messages take.
    pub fn never_ends(&self) {
        let state = &mut *self.state();
        let near = |ask: &Ask| state.near(state.lease_of(&ask.terms));
        if state.asks.iter().all(near) {
            state.accuse("P5", "the program does not come to an end".into());
        }
    }

    /// How long after the end of all tasks nothing may be left.
    pub fn patience(&self) -> Duration {
        let state = self.state();
        let busy = state.lines.iter().map(|line| line.busy).max();
        let kept = busy.map_or(0, |until| until.saturating_sub(state.now()));
        Duration::from_micros(
            kept + state.slack() + state.program.world.lease.as_micros() as u64 / 8,
        )
    }
}

impl State {
    fn ends(&mut self, index: usize) {
        let hold = self.holds.remove(index);
        let now = self.now();
        let micros = |time: Duration| time.as_micros() as u64;
        let shared = self
            .holds
            .iter()
            .any(|other| other.name == hold.name && other.fence == hold.fence);
        let until = now + self.slack();
        let granted = self
            .fact(hold.name, hold.fence)
            .and_then(|fact| fact.granted);
        // The minimum counts from the moment at which the task took its grant up: between these two.
        let latest = hold.since + micros(hold.terms.min_hold);
        let kept = granted.unwrap_or(hold.since).min(hold.since) + micros(hold.terms.min_hold);
        let steady = self.steady(self.lease_of(&hold.terms));
        if let Some(fact) = self.fact_mut(hold.name, hold.fence) {
            fact.idle = Some(now);
            fact.kept = fact.kept.max(latest);
        }
        let line = &mut self.lines[hold.name];
        line.used[hold.client] = now;
        if !shared {
            line.turn_ended(hold.fence, hold.weight);
        }
        if !hold.terms.min_hold.is_zero() && !hold.lost && steady {
            line.kept.push((kept, hold.client, hold.fence, hold.weight));
        }
        let kept = if hold.terms.min_hold.is_zero() {
            0
        } else {
            latest + until - now
        };
        line.busy = line.busy.max(until).max(kept);
        for (client, cool) in line.cool.iter_mut().enumerate() {
            let linger = if client == hold.client {
                0
            } else {
                micros(hold.terms.linger)
            };
            *cool = (*cool).max(until + linger).max(kept);
        }
    }

    /// Waiters are told when a client is shut down, and grants left at its end are lost.
    pub(super) fn see_shutdowns(&mut self) {
        let now = self.now();
        let slack = self.slack();
        let closing = |client: usize| self.lives[client].closing;
        let untold = self
            .asks
            .iter()
            .find(|ask| closing(ask.client).is_some_and(|when| now > when.max(ask.began) + slack));
        if let Some(ask) = untold {
            let what = format!(
                "client {} was shut down, and a call that waits was not told",
                ask.client
            );
            return self.accuse("P19", what);
        }
        let prompt = self.prompt();
        let late = self.lives.iter().position(|life| {
            let end = life.closing.zip(life.patience);
            let end = end.map(|(closing, patience)| closing + patience.as_micros() as u64);
            !life.closed && end.is_some_and(|end| now > end + prompt + CLOSING)
        });
        if let Some(client) = late {
            return self.accuse(
                "P19",
                format!("client {client} is being shut down for longer than its patience"),
            );
        }
        let kept = self
            .holds
            .iter()
            .find(|hold| self.lives[hold.client].closed && self.is_valid(hold));
        if let Some(hold) = kept {
            let what = format!(
                "client {} was shut down to the end, and fence {} is valid",
                hold.client, hold.fence
            );
            self.accuse("P19", what);
        }
    }
}

/// A shutdown may take so much longer than its patience, to tell the engine that the session ends.
const CLOSING: Micros = 500_000;
