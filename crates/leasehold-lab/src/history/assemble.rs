//! From events to requests.

use std::collections::{HashMap, HashSet};

use leasehold::engine::Micros;

use super::ends::{Ends, Loose};
use super::{Answer, Call, Effect, History, Hold, NEVER, Record, Taken, What};
use crate::Outcome;

/// Puts the events of all processes together.
///
/// # Errors
/// If an event answers a request that was never made: then the history has holes.
pub fn assemble(mut records: Vec<Record>) -> Outcome<History> {
    // Stable: events of one process with one stamp keep their order.
    records.sort_by_key(|record| record.t);
    let last = records.last().map_or(0, |record| record.t);
    let mut desk = Desk::default();
    for record in records {
        desk.take(record)?;
    }
    desk.finish(last);
    Ok(desk.history)
}

/// A request so far.
struct Open {
    hold: Hold,
    lease: Micros,
    answered: bool,
    until: Micros,
    lost: Micros,
    release: Micros,
    released: Micros,
    gone: Micros,
}

#[derive(Default)]
struct Desk {
    history: History,
    names: HashMap<String, u32>,
    whos: HashMap<String, u32>,
    open: HashMap<(u32, u64), Open>,
    /// The open requests of a process that may be stopped or killed.
    of: HashMap<u32, Vec<u64>>,
    dead: HashSet<String>,
    paused: HashMap<u32, Micros>,
    /// The processes that are cut off, and since when.
    cut: HashMap<String, Micros>,
    ends: Ends,
    fault_since: HashMap<String, Micros>,
}

/// Whether a process is the victim, a task of it, or one that follows it in its place: `w1` is followed by `w1.1`.
pub(super) fn belongs(who: &str, victim: &str) -> bool {
    let rest = who.strip_prefix(victim);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '.']))
}

fn index(map: &mut HashMap<String, u32>, list: &mut Vec<String>, text: &str) -> u32 {
    if let Some(index) = map.get(text) {
        return *index;
    }
    let index = list.len() as u32;
    list.push(text.to_owned());
    let _ = map.insert(text.to_owned(), index);
    index
}

impl Desk {
    fn name(&mut self, name: &str) -> u32 {
        index(&mut self.names, &mut self.history.names, name)
    }

    fn who(&mut self, who: &str) -> u32 {
        index(&mut self.whos, &mut self.history.whos, who)
    }

    fn take(&mut self, record: Record) -> Outcome<()> {
        let Record { t, who, op, what } = record;
        // Its events between the stamp and the signal.
        if who
            .split('/')
            .next()
            .is_some_and(|process| self.dead.contains(process))
        {
            return Ok(());
        }
        let who = self.who(&who);
        match what {
            What::Call(call) => self.call(t, who, op, &call),
            What::Effect {
                name,
                by,
                fence,
                accepted,
            } => {
                let (name, by) = (self.name(&name), self.who(&by));
                self.history.effects.push(Effect {
                    t,
                    name,
                    by,
                    fence,
                    accepted,
                });
            }
            What::Crashed(victim) => self.crashed(t, &victim),
            What::Paused(victim) => {
                self.hit(&victim);
                for who in self.those_of(&victim) {
                    let _ = self.paused.insert(who, t);
                }
            }
            What::Resumed(victim) => {
                for who in self.those_of(&victim) {
                    let since = self.paused.remove(&who).unwrap_or(t);
                    self.ends.stops.entry(who).or_default().push((since, t));
                }
            }
            What::Cut(victim) => {
                self.hit(&victim);
                let _ = self.cut.insert(victim, t);
            }
            What::Mended(victim) => {
                let since = self.cut.remove(&victim).unwrap_or(t);
                self.ends.cuts.push((victim, since, t));
            }
            What::Fault { fault, on: true } => {
                self.history.faults_made += 1;
                self.history.faults_held += u64::from(self.open.values().any(holds));
                // A fault of the servers may cost a place in the line.
                let open = self.open.values_mut();
                open.for_each(|open| open.hold.queued = NEVER);
                let _ = self.fault_since.insert(fault, t);
            }
            What::Fault { fault, on: false } => {
                let since = self.fault_since.remove(&fault).unwrap_or(t);
                self.history.faults.push((since, t));
            }
            What::Taken { name, fence, since } => {
                let name = self.name(&name);
                self.history.faults_made += 1;
                let hit = |open: &Open| open.hold.name == name && holds(open);
                self.history.faults_held += u64::from(self.open.values().any(hit));
                self.history.taken.push(Taken {
                    name,
                    fence,
                    since,
                    t,
                });
            }
            What::Left { name, count } => {
                let name = self.name(&name);
                let _ = self.history.left.insert(name, count);
            }
            What::Counted { name, count } => {
                let name = self.name(&name);
                let _ = self.history.counted.insert(name, count);
            }
            of_request => self.step(t, who, op, &of_request)?,
        }
        Ok(())
    }

    fn call(&mut self, t: Micros, who: u32, op: u64, call: &Call) {
        let name = &self.history.whos[who as usize];
        let cut = self.cut.keys().any(|victim| belongs(name, victim));
        let hold = Hold {
            name: self.name(&call.name),
            who,
            op,
            weight: call.weight,
            capacity: call.capacity,
            owner: call.owner,
            answer: Answer::Unknown,
            waits: call.waits,
            several: call.several,
            told_held: false,
            asked: false,
            hit: cut || self.paused.contains_key(&who),
            call: t,
            queued: NEVER,
            got: NEVER,
            end: NEVER,
            free: NEVER,
            fence: 0,
        };
        let open = Open {
            hold,
            lease: call.lease,
            answered: false,
            until: NEVER,
            lost: NEVER,
            release: NEVER,
            released: NEVER,
            gone: NEVER,
        };
        let _ = self.open.insert((who, op), open);
        self.of.entry(who).or_default().push(op);
    }

    fn step(&mut self, t: Micros, who: u32, op: u64, what: &What) -> Outcome<()> {
        let Some(open) = self.open.get_mut(&(who, op)) else {
            let who = &self.history.whos[who as usize];
            return Err(format!("{who} op {op}: {what:?} without a call").into());
        };
        let mut answer = |answer| {
            open.hold.answer = answer;
            open.hold.got = t;
            open.answered = true;
        };
        match *what {
            What::Queued if self.fault_since.is_empty() => open.hold.queued = t,
            What::Granted { fence, until } => {
                answer(Answer::Granted);
                open.hold.fence = fence;
                open.until = until;
            }
            What::Until(until) => open.until = until,
            What::Busy => answer(Answer::Busy),
            What::Failed { perhaps: false } => answer(Answer::Failed),
            What::Failed { perhaps: true } | What::Cancelled => answer(Answer::Unknown),
            What::Lost => {
                self.history.losses += u64::from(open.lost == NEVER);
                open.lost = open.lost.min(t);
            }
            What::Release => open.release = t,
            What::Released { held, asked } => {
                open.released = t;
                (open.hold.told_held, open.hold.asked) = (held, asked);
            }
            _ => {}
        }
        let done = open.released != NEVER || (open.answered && open.hold.answer != Answer::Granted);
        if done && let Some(open) = self.open.remove(&(who, op)) {
            if let Some(ops) = self.of.get_mut(&who) {
                ops.retain(|other| *other != op);
            }
            self.push(open, t);
        }
        Ok(())
    }

    fn push(&mut self, open: Open, last: Micros) {
        let loose = Loose {
            at: self.history.holds.len(),
            lease: open.lease,
            let_go: let_go(&open, last),
        };
        let hold = close(open, last);
        let ended = hold.told_held || matches!(hold.answer, Answer::Busy | Answer::Failed);
        if !ended {
            self.ends.loose.push(loose);
        }
        self.history.holds.push(hold);
    }

    /// Tasks of a process are called `PROCESS/TASK`: what hits the process hits them.
    fn those_of(&mut self, victim: &str) -> Vec<u32> {
        let _ = self.who(victim);
        let whos = self.history.whos.iter().enumerate();
        whos.filter(|(_, who)| belongs(who, victim))
            .map(|(index, _)| index as u32)
            .collect()
    }

    fn crashed(&mut self, t: Micros, victim: &str) {
        let _ = self.dead.insert(victim.to_owned());
        self.history.faults_made += 1;
        let mut held = false;
        for who in self.those_of(victim) {
            for op in self.of.remove(&who).unwrap_or_default() {
                if let Some(mut open) = self.open.remove(&(who, op)) {
                    held |= holds(&open);
                    open.gone = t;
                    open.hold.hit = true;
                    self.push(open, t);
                }
            }
        }
        self.history.faults_held += u64::from(held);
    }

    fn hit(&mut self, victim: &str) {
        self.history.faults_made += 1;
        let mut held = false;
        for who in self.those_of(victim) {
            for op in self.of.get(&who).into_iter().flatten() {
                if let Some(open) = self.open.get_mut(&(who, *op)) {
                    held |= holds(open);
                    open.hold.hit = true;
                }
            }
        }
        self.history.faults_held += u64::from(held);
    }

    fn finish(&mut self, last: Micros) {
        for (_, open) in std::mem::take(&mut self.open) {
            self.push(open, last);
        }
        for (_, since) in std::mem::take(&mut self.fault_since) {
            self.history.faults.push((since, last));
        }
        self.ends.apply(&mut self.history);
        self.history
            .holds
            .sort_by_key(|hold| (hold.call, hold.who, hold.op));
    }
}

fn holds(open: &Open) -> bool {
    open.hold.answer == Answer::Granted && open.release == NEVER && open.lost == NEVER
}

/// When its process no longer spoke for a request, unless it died.
fn let_go(open: &Open, last: Micros) -> Option<Micros> {
    let at = match open.hold.answer {
        Answer::Granted => open.release.min(open.lost),
        _ => open.hold.got,
    };
    (open.gone == NEVER).then_some(at.min(last))
}

/// The end of a request, as far as it is known by `last`.
fn close(open: Open, last: Micros) -> Hold {
    let mut hold = open.hold;
    if hold.answer != Answer::Granted {
        hold.got = hold.got.min(open.gone).min(last);
        hold.end = hold.got;
        hold.free = match hold.answer {
            Answer::Unknown => hold.got.saturating_add(open.lease),
            _ => hold.got,
        };
        return hold;
    }
    let own = open
        .release
        .min(open.lost)
        .min(open.until)
        .min(open.gone)
        .min(last);
    // A holder that is told "held until then" has been told so of the whole time.
    hold.end = if hold.told_held { open.release } else { own }.max(hold.got);
    hold.free = match open.released {
        // The lock of a dead holder is to be free a lease later.
        NEVER if open.gone != NEVER => open.gone.saturating_add(open.lease),
        told if hold.told_held => told,
        // Also a holder that is told that it was lost: the engine may keep it until the lease is over there too.
        _ => hold
            .end
            .max(open.until.min(last))
            .saturating_add(open.lease),
    };
    hold
}
