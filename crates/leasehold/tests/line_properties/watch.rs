//! Invariants after every step, written without knowing how the rule is carried out.

use std::collections::HashMap;

use leasehold::engine::{ClaimId, FENCE_BLOCK, Release};
use leasehold::line::{Change, Line, Moment, Place, What};

use crate::oracle::{Answer, Op};

/// One step of a line.
pub(crate) struct Step<'a> {
    pub(crate) op: &'a Op,
    pub(crate) at: Moment,
    pub(crate) before: &'a [Place],
    pub(crate) line: &'a Line,
    pub(crate) answer: &'a Answer,
    pub(crate) changes: &'a [Change],
}

/// Remembers what has been used.
pub(crate) struct Watch {
    /// The largest fence that an ended grant may have used.
    spent: u64,
}

const BLOCK: u64 = FENCE_BLOCK as u64;

impl Watch {
    pub(crate) fn new(start: u64) -> Self {
        Self { spent: start }
    }

    pub(crate) fn check(&mut self, step: &Step<'_>) {
        step.capacity_and_progress();
        step.order();
        step.deadlines();
        step.ends();
        step.reports();
        self.fences(step);
    }

    /// Blocks are apart, grow in order of arrival, and start above all that was ever used.
    fn fences(&mut self, step: &Step<'_>) {
        let old: HashMap<_, _> = step.before.iter().map(|p| (p.id, p.fence)).collect();
        for place in step.before {
            let Some(first) = place.fence else { continue };
            let used = match (step.op, step.answer) {
                (Op::Release(id, used), Answer::Release(Release::Released)) if *id == place.id => {
                    u64::from((*used).clamp(1, FENCE_BLOCK))
                }
                _ if step.stayed(place) => continue,
                _ => BLOCK,
            };
            self.spent = self.spent.max(first.get() + used - 1);
        }
        // Granted and taken away in one step: it was told, so it may have been used.
        for change in step.changes {
            if let What::Granted(held) = change.what
                && !step.line.holders().any(|p| p.fence == Some(held.fence))
            {
                assert!(held.fence.get() > self.spent, "a fence again");
                self.spent = self.spent.max(held.fence.get() + BLOCK - 1);
            }
        }
        let mut end = 0;
        for place in step.line.holders() {
            let first = place.fence.expect("a holder").get();
            assert!(first > end, "blocks overlap or are out of order");
            end = first + BLOCK - 1;
            if old.get(&place.id) != Some(&place.fence) {
                assert!(first > self.spent, "a used fence was given out again");
            }
        }
        assert!(end <= i64::MAX as u64, "a fence does not fit");
        assert!(step.line.last_fence() >= end.max(self.spent));
    }
}

impl Step<'_> {
    /// Whether a claim of before is still the same claim, not one that ended and joined again.
    fn stayed(&self, place: &Place) -> bool {
        let dead = matches!(self.op, Op::SweepDead(session) if *session == place.session);
        place.deadline > self.at.now && !dead && self.line.places().any(|p| p.id == place.id)
    }

    fn capacity_and_progress(&self) {
        let line = self.line;
        let taken: u64 = line.holders().map(|p| u64::from(p.weight)).sum();
        let capacity = u64::from(line.capacity());
        assert!(line.is_idle() || taken <= capacity, "over capacity");
        assert!(line.holders().all(|p| p.fence.is_some()));
        assert!(line.waiters().all(|p| p.fence.is_none()));
        assert_eq!(
            line.holders().len() + line.waiters().len(),
            line.places().len()
        );
        if let Some(next) = line.waiters().next() {
            let needs = taken + u64::from(next.weight);
            assert!(needs > capacity, "the front waiter fits and waits");
        }
    }

    /// Claims keep their order; only a new one joins, at the end.
    fn order(&self) {
        let stayed = self.before.iter().filter(|place| self.stayed(place));
        let stayed: Vec<ClaimId> = stayed.map(|place| place.id).collect();
        let now: Vec<ClaimId> = self.line.places().map(|place| place.id).collect();
        let joined = now.strip_prefix(stayed.as_slice()).expect("the same order");
        match joined {
            [] => {}
            [id] => assert!(matches!(self.op, Op::Claim(ask) if ask.id == *id)),
            more => panic!("{more:?} joined at once"),
        }
    }

    /// Only a word of the claim's own session moves its deadline, and never back.
    fn deadlines(&self) {
        for old in self.before.iter().filter(|place| self.stayed(place)) {
            let new = self
                .line
                .places()
                .find(|p| p.id == old.id)
                .expect("it stayed");
            let lease = match self.op {
                Op::Claim(ask) if ask.id == old.id => match self.answer {
                    Answer::Claim(Ok(_)) => Some(ask.lease),
                    _ => None,
                },
                Op::Heartbeat(id) if *id == old.id => Some(old.lease),
                _ => None,
            };
            let word = lease.map_or(0, |lease| self.at.now.saturating_add(lease));
            assert_eq!(new.deadline, old.deadline.max(word), "{:?}", old.id);
            assert_eq!(new.since, old.since);
            assert!(
                old.fence.is_none() || new.fence == old.fence,
                "another fence"
            );
        }
    }

    /// A claim leaves by release, expiry, the death of its session or eviction, and by nothing else.
    fn ends(&self) {
        for old in self.before.iter().filter(|place| !self.stayed(place)) {
            let dead = matches!(self.op, Op::SweepDead(session) if *session == old.session);
            let expired = old.deadline <= self.at.now || dead;
            let released = matches!(self.op, Op::Release(id, _) if *id == old.id);
            let evicted = matches!(self.op, Op::Evict(_));
            assert!(expired || released || evicted, "{:?} is lost", old.id);
            if self.op.asker() != Some(old.id) {
                let what = if expired {
                    What::Expired
                } else {
                    What::Evicted
                };
                let told = self.changes.iter().filter(|c| c.claim == old.id);
                assert!(
                    told.clone().any(|c| c.what == what),
                    "no session was told of {:?}",
                    old.id
                );
            }
        }
    }

    /// Every grant to a claim that did not ask is told once, to the right session; nothing else is.
    fn reports(&self) {
        let grants = |id: ClaimId| {
            let told = self.changes.iter().filter(move |c| c.claim == id);
            told.filter(|c| matches!(c.what, What::Granted(_))).count()
        };
        for place in self.line.places() {
            let old = self.before.iter().find(|p| p.id == place.id);
            let granted = place.fence.is_some() && old.is_some_and(|old| old.fence.is_none());
            let told = granted && self.op.asker() != Some(place.id);
            assert_eq!(grants(place.id), usize::from(told), "{:?}", place.id);
        }
        for change in self.changes {
            let known = self.before.iter().chain(self.line.places());
            let mut known = known.filter(|place| place.id == change.claim);
            assert!(known.all(|place| place.session == change.session));
            assert_ne!(Some(change.claim), self.op.asker(), "told twice");
        }
    }
}
