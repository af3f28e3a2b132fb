//! The rule: claims are granted in order of arrival while their weights fit the capacity.
//!
//! A pure state machine: no I/O, no clock of its own. It is the state of the `memory` and `file` engines, the
//! specification every other engine is tested against, and what the model checker explores.
//!
//! Every operation first drops what has expired, then does its own work, then grants to whoever now fits, and
//! returns the [`Change`]s it caused, so that they can be told to their sessions.

use std::collections::VecDeque;
use std::time::Duration;

use crate::claim::{ClaimId, Mode, SessionId};
use crate::clock::Micros;
use crate::fence::{FENCE_BLOCK, Fence};

/// The moment of an operation, as the line's keeper sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Leases are counted on this clock.
    pub now: Micros,
    /// Fences start above this number. The wall clock where counters may be dropped, 0 where they never are.
    pub floor: u64,
}

/// One request to join a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Identifies the claim.
    pub id: ClaimId,
    /// Whose claim it is.
    pub session: SessionId,
    /// Weight and capacity.
    pub mode: Mode,
    /// How long the claim lasts after each word of its session.
    pub lease: Micros,
    /// Whether to wait in line; a try does not.
    pub waits: bool,
}

/// One claim in a line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// Identifies the claim.
    pub id: ClaimId,
    /// Whose claim it is.
    pub session: SessionId,
    /// How much of the capacity it takes.
    pub weight: u32,
    /// How long it lasts after each word of its session.
    pub lease: Micros,
    /// When it joined.
    pub since: Micros,
    /// When it ends: the last word of its own session plus the lease, waiting or holding.
    pub deadline: Micros,
    /// The first fence of its block, once it holds.
    pub fence: Option<Fence>,
}

/// The claims on one name in order of arrival. The front ones that fit hold the lock, the rest wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Line {
    capacity: u32,
    /// The largest fence ever reserved.
    last: u64,
    /// In order of arrival; the first `held` of them hold. Grants go strictly in order, so holders are a prefix.
    places: VecDeque<Place>,
    held: usize,
}

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It holds the lock.
    Held(Held),
    /// It waits.
    Waiting {
        /// How many claims are before it.
        ahead: u32,
        /// When to ask again, in case nobody tells: something before it may have ended by then.
        look_again: Duration,
    },
    /// A try found no room; it did not join.
    Busy,
    /// It is not in the line: it ended, or was never there.
    Gone,
}

/// What a holder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// The first fence of a block that belongs to this grant alone.
    pub fence: Fence,
    /// How many fences there are in the block.
    pub block: u32,
    /// Whether somebody waits behind.
    pub wanted: bool,
}

/// The answer to a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Release {
    /// It was in the line, and is no longer.
    Released,
    /// It was not there.
    Gone,
}

/// Why a claim was not let into the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The line is in use with this other capacity.
    Capacity(u32),
    /// The weight is zero or more than the capacity.
    Weight,
    /// No fence is left below 2^63.
    Fences,
}

/// What an operation did to a claim, to be told to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Change {
    /// Whom to tell.
    pub session: SessionId,
    /// About which claim.
    pub claim: ClaimId,
    /// What happened to it.
    pub what: What,
}

/// What happened to a claim that did not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// It waited and now holds.
    Granted(Held),
    /// It holds, and somebody joined the line behind it.
    Wanted,
    /// Its session said nothing for a lease.
    Expired,
    /// It was taken away.
    Evicted,
}

/// The largest fence: it must fit a signed 64-bit column.
const FENCE_MAX: u64 = i64::MAX as u64;

impl Line {
    /// An empty line whose next fence is above `last`.
    pub fn new(last: u64) -> Self {
        Self {
            last,
            ..Self::default()
        }
    }

    /// A line as it was stored. The places are in order of arrival, holders first.
    pub fn restore(capacity: u32, last: u64, places: Vec<Place>) -> Self {
        let held = places
            .iter()
            .take_while(|place| place.fence.is_some())
            .count();
        Self {
            capacity,
            last,
            places: places.into(),
            held,
        }
    }

    /// The capacity that the claims in the line agree on.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The largest fence ever reserved: what must be remembered of an empty line.
    pub fn last_fence(&self) -> u64 {
        self.last
    }

    /// The claims in order of arrival.
    pub fn places(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.places.iter()
    }

    /// The claims that hold the lock.
    pub fn holders(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.places.iter().take(self.held)
    }

    /// The claims that wait.
    pub fn waiters(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.places.iter().skip(self.held)
    }

    /// Whether nobody holds or waits.
    pub fn is_idle(&self) -> bool {
        self.places.is_empty()
    }

    /// Joins the line, or, for a claim already in it, says that its session is alive. A holder that asks again
    /// with a smaller weight gives the difference back.
    pub fn claim(&mut self, ask: &Ask, at: Moment) -> (Result<Standing, Refusal>, Vec<Change>) {
        let mut changes = self.sweep(at);
        if self.find(ask.id).is_some() {
            return (Ok(self.again(ask, at, &mut changes)), changes);
        }
        if let Err(refusal) = self.admits(ask, at) {
            return (Err(refusal), changes);
        }
        self.capacity = ask.mode.capacity();
        let first = self.waiters().len() == 0;
        let fits = first && self.fits(ask.mode.weight());
        if first && !fits {
            // A try tells it too: whoever only lingers gives up, and the next try gets in.
            changes.extend(self.holders().map(|place| change(place, What::Wanted)));
        }
        if !fits && !ask.waits {
            return (Ok(Standing::Busy), changes);
        }
        self.places.push_back(Place {
            id: ask.id,
            session: ask.session,
            weight: ask.mode.weight(),
            lease: ask.lease,
            since: at.now,
            deadline: at.now.saturating_add(ask.lease),
            fence: None,
        });
        if fits {
            self.grant_next(at);
        }
        (Ok(self.standing(ask.id, at)), changes)
    }

    /// Says that a claim's session is alive, and asks where the claim stands.
    pub fn heartbeat(&mut self, id: ClaimId, at: Moment) -> (Standing, Vec<Change>) {
        let changes = self.sweep(at);
        if let Some(index) = self.find(id) {
            self.places[index].deadline = at.now.saturating_add(self.places[index].lease);
        }
        (self.standing(id, at), changes)
    }

    /// Leaves the line, holding or waiting. Of a holder's block of fences only the first `used` are spent.
    pub fn release(&mut self, id: ClaimId, used: u32, at: Moment) -> (Release, Vec<Change>) {
        let mut changes = self.sweep(at);
        let Some(index) = self.find(id) else {
            return (Release::Gone, changes);
        };
        let place = self.remove(index);
        if let Some(first) = place.fence {
            self.give_back(first.get(), used);
        }
        self.promote(at, &mut changes);
        (Release::Released, changes)
    }

    /// Drops every claim whose session said nothing for a lease, and grants to whoever now fits.
    pub fn sweep(&mut self, at: Moment) -> Vec<Change> {
        self.sweep_dead(at, |_| false)
    }

    /// Like [`sweep`](Self::sweep), and drops the claims of sessions known to be dead.
    pub fn sweep_dead(&mut self, at: Moment, dead: impl Fn(SessionId) -> bool) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut index = 0;
        while let Some(place) = self.places.get(index) {
            if place.deadline <= at.now || dead(place.session) {
                let place = self.remove(index);
                changes.push(change(&place, What::Expired));
            } else {
                index += 1;
            }
        }
        self.promote(at, &mut changes);
        changes
    }

    /// Takes the lock away from all who hold it, or from the holder of one fence. Every later fence is larger.
    pub fn evict(&mut self, fence: Option<Fence>, at: Moment) -> Vec<Change> {
        let mut changes = self.sweep(at);
        for index in (0..self.held).rev() {
            let place = &self.places[index];
            if fence.is_none_or(|fence| place.owns(fence)) {
                let place = self.remove(index);
                changes.push(change(&place, What::Evicted));
            }
        }
        self.promote(at, &mut changes);
        changes
    }

    /// Where a claim stands now.
    pub fn standing(&self, id: ClaimId, at: Moment) -> Standing {
        let Some(index) = self.find(id) else {
            return Standing::Gone;
        };
        match self.places[index].fence {
            Some(fence) => Standing::Held(self.held(fence)),
            None => Standing::Waiting {
                ahead: u32::try_from(index).unwrap_or(u32::MAX),
                look_again: Duration::from_micros(self.look_again(index).saturating_sub(at.now)),
            },
        }
    }

    /// A claim that is already in the line asks again.
    fn again(&mut self, ask: &Ask, at: Moment, changes: &mut Vec<Change>) -> Standing {
        if let Some(index) = self.find(ask.id) {
            let place = &mut self.places[index];
            place.lease = ask.lease;
            place.deadline = at.now.saturating_add(ask.lease);
            if place.fence.is_some() && ask.mode.weight() < place.weight {
                place.weight = ask.mode.weight().max(1);
                self.promote(at, changes);
            }
        }
        self.standing(ask.id, at)
    }

    fn admits(&self, ask: &Ask, at: Moment) -> Result<(), Refusal> {
        let (weight, capacity) = (ask.mode.weight(), ask.mode.capacity());
        if weight == 0 || weight > capacity {
            return Err(Refusal::Weight);
        }
        if !self.is_idle() && self.capacity != capacity {
            return Err(Refusal::Capacity(self.capacity));
        }
        // Every claim in the line will need a block.
        let blocks = (self.waiters().len() as u64 + 1) * u64::from(FENCE_BLOCK);
        if self.last.max(at.floor) > FENCE_MAX - blocks {
            return Err(Refusal::Fences);
        }
        Ok(())
    }

    /// Grants to the front of the waiters while they fit: never past one that does not.
    fn promote(&mut self, at: Moment, changes: &mut Vec<Change>) {
        let first = self.held;
        while self
            .places
            .get(self.held)
            .is_some_and(|next| self.fits(next.weight))
        {
            self.grant_next(at);
        }
        for index in first..self.held {
            let place = &self.places[index];
            if let Some(fence) = place.fence {
                changes.push(change(place, What::Granted(self.held(fence))));
            }
        }
    }

    /// Grants to the first waiter, which must fit. Its deadline does not move: only its own session moves it.
    fn grant_next(&mut self, at: Moment) {
        let fence = self.last.saturating_add(1).max(at.floor);
        self.places[self.held].fence = Some(Fence::new(fence));
        self.last = block_end(fence);
        self.held += 1;
    }

    /// The unused part of a block can be given out again only while nobody was granted a later one.
    fn give_back(&mut self, first: u64, used: u32) {
        if self.last == block_end(first) {
            self.last = first + u64::from(used.clamp(1, FENCE_BLOCK)) - 1;
        }
    }

    fn fits(&self, weight: u32) -> bool {
        let taken: u64 = self.holders().map(|place| u64::from(place.weight)).sum();
        taken + u64::from(weight) <= u64::from(self.capacity)
    }

    fn held(&self, fence: Fence) -> Held {
        Held {
            fence,
            block: FENCE_BLOCK,
            wanted: self.waiters().len() > 0,
        }
    }

    /// The first waiter looks when a holder may have ended; the others when the one before them may have.
    fn look_again(&self, index: usize) -> Micros {
        if index > self.held {
            return self.places[index - 1].deadline;
        }
        let ends = self.holders().map(|place| place.deadline);
        ends.min().unwrap_or(0)
    }

    fn find(&self, id: ClaimId) -> Option<usize> {
        self.places.iter().position(|place| place.id == id)
    }

    fn remove(&mut self, index: usize) -> Place {
        if index < self.held {
            self.held -= 1;
        }
        self.places
            .remove(index)
            .expect("an index that was just found")
    }
}

impl Place {
    /// Whether a fence belongs to this grant's block.
    pub fn owns(&self, fence: Fence) -> bool {
        self.fence
            .is_some_and(|first| (first.get()..=block_end(first.get())).contains(&fence.get()))
    }
}

fn change(place: &Place, what: What) -> Change {
    Change {
        session: place.session,
        claim: place.id,
        what,
    }
}

fn block_end(fence: u64) -> u64 {
    fence.saturating_add(u64::from(FENCE_BLOCK) - 1)
}
