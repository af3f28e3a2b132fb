//! The rule again, as slowly and plainly as possible: every grant ever made is remembered, and the holders are found by
//! walking the line from its front.

use std::time::Duration;

use leasehold::Fence;
use leasehold::engine::{ClaimId, FENCE_BLOCK, Held, Release, SessionId, Standing};
use leasehold::line::{Ask, Change, Moment, Place, Refusal, What};

/// One operation on a line.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Claim(Ask),
    Heartbeat(ClaimId),
    Release(ClaimId, u32),
    Sweep,
    SweepDead(SessionId),
    Evict(Option<Fence>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Claim(Result<Standing, Refusal>),
    Heartbeat(Standing),
    Release(Release),
    Nothing,
}

/// One grant of the past or present.
struct Grant {
    first: u64,
    /// The last fence that may have been used.
    end: u64,
}

pub(crate) struct Oracle {
    pub(crate) capacity: u32,
    pub(crate) line: Vec<Place>,
    start: u64,
    grants: Vec<Grant>,
}

const BLOCK: u64 = FENCE_BLOCK as u64;

impl Oracle {
    pub(crate) fn new(start: u64) -> Self {
        Self {
            capacity: 0,
            line: Vec::new(),
            start,
            grants: Vec::new(),
        }
    }

    /// The largest fence that a holder may have used or may still use.
    pub(crate) fn spent(&self) -> u64 {
        let ends = self.grants.iter().map(|grant| grant.end);
        ends.max().unwrap_or(0).max(self.start)
    }

    pub(crate) fn step(&mut self, op: &Op, at: Moment) -> (Answer, Vec<Change>) {
        let dead = match op {
            Op::SweepDead(session) => Some(*session),
            _ => None,
        };
        let mut changes = self.drop_those(What::Expired, |p| {
            p.deadline <= at.now || Some(p.session) == dead
        });
        changes.extend(self.settle(at));
        let answer = match op {
            Op::Claim(ask) => Answer::Claim(self.claim(ask, at, &mut changes)),
            Op::Heartbeat(id) => {
                if let Some(place) = self.line.iter_mut().find(|place| place.id == *id) {
                    place.deadline = place.deadline.max(at.now.saturating_add(place.lease));
                }
                Answer::Heartbeat(self.standing(*id, at))
            }
            Op::Release(id, used) => Answer::Release(self.release(*id, *used)),
            Op::Sweep | Op::SweepDead(_) => Answer::Nothing,
            Op::Evict(which) => {
                let meant = |first: u64, fence: u64| first <= fence && fence < first + BLOCK;
                changes.extend(self.drop_those(What::Evicted, |place| {
                    place.fence.is_some_and(|first| {
                        which.is_none_or(|fence| meant(first.get(), fence.get()))
                    })
                }));
                Answer::Nothing
            }
        };
        changes.extend(self.settle(at));
        changes.retain(|change| Some(change.claim) != op.asker());
        (answer, changes)
    }

    /// Joins the line and looks what came of it.
    fn claim(
        &mut self,
        ask: &Ask,
        at: Moment,
        changes: &mut Vec<Change>,
    ) -> Result<Standing, Refusal> {
        let (weight, capacity) = (ask.mode.weight(), ask.mode.capacity());
        if weight == 0 || weight > capacity {
            return Err(Refusal::Weight);
        }
        if !self.line.is_empty() && capacity != self.capacity {
            return Err(Refusal::Capacity(self.capacity));
        }
        if let Some(place) = self.line.iter_mut().find(|place| place.id == ask.id) {
            place.lease = ask.lease;
            place.deadline = place.deadline.max(at.now.saturating_add(ask.lease));
            if place.fence.is_some() {
                place.weight = place.weight.min(weight);
            }
            changes.extend(self.settle(at));
            return Ok(self.standing(ask.id, at));
        }
        let waited = self.waiting();
        if u128::from(self.spent().max(at.floor)) + u128::from((waited + 1) * BLOCK)
            > i64::MAX as u128
        {
            return Err(Refusal::Fences);
        }
        self.capacity = capacity;
        self.line.push(Place {
            id: ask.id,
            session: ask.session,
            weight,
            lease: ask.lease,
            since: at.now,
            deadline: at.now.saturating_add(ask.lease),
            fence: None,
        });
        let _ = self.settle(at);
        let standing = self.standing(ask.id, at);
        if matches!(standing, Standing::Held(_)) {
            return Ok(standing);
        }
        if waited == 0 {
            let holders = self.line.iter().filter(|place| place.fence.is_some());
            changes.extend(holders.map(|place| told(place, What::Wanted)));
        }
        if ask.waits {
            return Ok(standing);
        }
        let _ = self.line.pop();
        Ok(Standing::Busy)
    }

    fn release(&mut self, id: ClaimId, used: u32) -> Release {
        let Some(at) = self.line.iter().position(|place| place.id == id) else {
            return Release::Gone;
        };
        let place = self.line.remove(at);
        // The block reserved last can be given out again, but for its used part.
        if let (Some(first), Some(last)) = (place.fence, self.grants.last_mut())
            && last.first == first.get()
        {
            last.end = last.first + u64::from(used.clamp(1, FENCE_BLOCK)) - 1;
        }
        Release::Released
    }

    pub(crate) fn standing(&self, id: ClaimId, at: Moment) -> Standing {
        let Some(index) = self.line.iter().position(|place| place.id == id) else {
            return Standing::Gone;
        };
        if let Some(fence) = self.line[index].fence {
            return Standing::Held(self.held(fence));
        }
        let before = &self.line[index - 1];
        let holders = self.line.iter().filter(|place| place.fence.is_some());
        let look = match before.fence {
            Some(_) => holders.map(|place| place.deadline).min().expect("a holder"),
            None => before.deadline,
        };
        Standing::Waiting {
            ahead: index as u32,
            look_again: Duration::from_micros(look.saturating_sub(at.now)),
        }
    }

    /// Walks the line from its front until one does not fit.
    fn settle(&mut self, at: Moment) -> Vec<Change> {
        let mut taken = 0_u64;
        let mut granted = Vec::new();
        for index in 0..self.line.len() {
            taken += u64::from(self.line[index].weight);
            if taken > u64::from(self.capacity) {
                break;
            }
            if self.line[index].fence.is_none() {
                let room = i64::MAX as u64 - self.waiting() * BLOCK;
                let first = self.spent().max(at.floor.min(room)) + 1;
                let end = first + BLOCK - 1;
                self.grants.push(Grant { first, end });
                self.line[index].fence = Some(Fence::new(first));
                granted.push(index);
            }
        }
        let told = granted.into_iter().map(|index| {
            let place = &self.line[index];
            told(
                place,
                What::Granted(self.held(place.fence.expect("a grant"))),
            )
        });
        told.collect()
    }

    fn drop_those(&mut self, what: What, those: impl Fn(&Place) -> bool) -> Vec<Change> {
        let (gone, stay) = self
            .line
            .drain(..)
            .partition::<Vec<_>, _>(|place| those(place));
        self.line = stay;
        gone.iter().map(|place| told(place, what)).collect()
    }

    fn waiting(&self) -> u64 {
        self.line
            .iter()
            .filter(|place| place.fence.is_none())
            .count() as u64
    }

    fn held(&self, fence: Fence) -> Held {
        Held::new(fence, FENCE_BLOCK, self.waiting() > 0)
    }
}

impl Op {
    /// The claim that is told by the answer.
    pub(crate) fn asker(&self) -> Option<ClaimId> {
        match self {
            Self::Claim(ask) => Some(ask.id),
            Self::Heartbeat(id) | Self::Release(id, _) => Some(*id),
            _ => None,
        }
    }
}

fn told(place: &Place, what: What) -> Change {
    Change {
        session: place.session,
        claim: place.id,
        what,
    }
}
