//! The rule: claims are granted in order of arrival while their weights fit the capacity.
//!
//! A pure state machine: no I/O, no clock of its own. It is the state of the `memory` and `file` engines, the
//! specification every other engine is tested against, and what the model checker explores.
//!
//! Hidden from the documentation and promised to no version: the tests of the workspace and the model checker reach it.
//!
//! Every operation first sweeps: it drops expired claims and grants to the claims that now fit, so that an answer never
//! depends on when the last operation was. Then it does its own work, and grants again. It returns the [`Change`]s it
//! caused to others, so that they can be told to their sessions; the claim that asks is told by the answer.

mod words;

use std::time::Duration;

use self::words::block_end;
pub use self::words::{Ask, Change, Held, Moment, Place, Refusal, Release, Standing, What};
use crate::claim::{ClaimId, SessionId};
use crate::clock::Micros;
use crate::fence::{FENCE_BLOCK, Fence};

/// The claims on one name in order of arrival. The front ones that fit hold the lock, the rest wait.
///
/// ```
/// use leasehold::engine::{ClaimId, Mode, SessionId};
/// use leasehold::line::{Ask, Line, Moment, Release, Standing, What};
///
/// let ask = |mode| Ask { id: ClaimId::random(), session: SessionId::random(), mode, lease: 1000, waits: true };
/// let (writer, reader) = (ask(Mode::Write), ask(Mode::Read));
/// let at = |now| Moment { now, floor: 0 };
///
/// let mut line = Line::default();
/// let (answer, _) = line.claim(&writer, at(0));
/// assert!(matches!(answer, Ok(Standing::Held(_))));
/// let (answer, _) = line.claim(&reader, at(10));
/// assert!(matches!(answer, Ok(Standing::Waiting { ahead: 1, .. })));
///
/// let (release, changes) = line.release(writer.id, 1, at(20));
/// assert_eq!(release, Release::Released);
/// assert_eq!(changes[0].claim, reader.id); // to be told to its session
/// assert!(matches!(changes[0].what, What::Granted(_)));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Line {
    capacity: u32,
    /// The largest fence spent or reserved.
    last: u64,
    /// In order of arrival; the first `held` of them hold. Grants go strictly in order, so holders are a prefix.
    places: Vec<Place>,
    held: usize,
}

/// The largest fence: it must fit a signed 64-bit column.
const FENCE_MAX: u64 = i64::MAX as u64;

/// The most claims that hold a name or wait for it. Every step looks at all of them: a line without an end would keep its
/// keeper from all other work.
pub const LINE_MAX: usize = 20_000;

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
        Self {
            capacity,
            last,
            held: holding(&places),
            places,
        }
    }

    /// The capacity that the claims in the line agree on.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The largest fence spent or reserved: what must be remembered of an empty line.
    pub fn last_fence(&self) -> u64 {
        self.last
    }

    /// The claims in order of arrival.
    pub fn places(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.places.iter()
    }

    /// The claims that hold the lock.
    pub fn holders(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.places[..self.held].iter()
    }

    /// The claims that wait.
    pub fn waiters(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.places[self.held..].iter()
    }

    /// Whether the line has no holder and no waiter.
    pub fn is_idle(&self) -> bool {
        self.places.is_empty()
    }

    /// Joins the line, or, for a claim already in it, says that its session is alive. A holder that asks again
    /// with a smaller weight gives the difference back.
    pub fn claim(&mut self, ask: &Ask, at: Moment) -> (Result<Standing, Refusal>, Vec<Change>) {
        let mut changes = Vec::new();
        self.sweep_for(&mut changes, ask.id, at);
        let found = self.find(ask.id);
        if let Err(refusal) = self.admits(ask, found.is_none(), at) {
            return (Err(refusal), changes);
        }
        if let Some(index) = found {
            self.again(index, ask, at, &mut changes);
            return (Ok(self.standing_at(index, at)), changes);
        }
        self.capacity = ask.mode.capacity();
        let first = self.waiters().len() == 0;
        let fits = first && self.fits(ask.mode.weight());
        if first && !fits {
            // A try tells it too: a holder that only lingers gives up, and the next try gets in.
            changes.extend(self.holders().map(|place| place.change(What::Wanted)));
        }
        if !fits && !ask.waits {
            return (Ok(Standing::Busy), changes);
        }
        self.places.push(Place {
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
        (Ok(self.standing_at(self.places.len() - 1, at)), changes)
    }

    /// Says that a claim's session is alive, and asks where the claim stands.
    pub fn heartbeat(&mut self, id: ClaimId, at: Moment) -> (Standing, Vec<Change>) {
        let mut changes = Vec::new();
        self.sweep_for(&mut changes, id, at);
        if let Some(index) = self.find(id) {
            self.places[index].heard(at.now);
        }
        (self.standing(id, at), changes)
    }

    /// Leaves the line, holding or waiting. Of a holder's block of fences only the first `used` are spent; the
    /// first of all counts as spent, because it was told.
    pub fn release(&mut self, id: ClaimId, used: u32, at: Moment) -> (Release, Vec<Change>) {
        let mut changes = Vec::new();
        self.sweep_for(&mut changes, id, at);
        let Some(index) = self.find(id) else {
            return (Release::Gone, changes);
        };
        let place = self.places.remove(index);
        self.held -= usize::from(index < self.held);
        if let Some(first) = place.fence {
            self.give_back(first.get(), used);
        }
        self.promote(at, &mut changes);
        (Release::Released, changes)
    }

    /// Drops every claim whose session said nothing for a lease, and grants to the claims that now fit.
    pub fn sweep(&mut self, at: Moment) -> Vec<Change> {
        self.sweep_dead(at, |_| false)
    }

    /// Like [`sweep`](Self::sweep), and drops the claims of sessions known to be dead.
    pub fn sweep_dead(&mut self, at: Moment, dead: impl Fn(SessionId) -> bool) -> Vec<Change> {
        let mut changes = Vec::new();
        self.sweep_into(&mut changes, at, dead);
        changes
    }

    fn sweep_into(
        &mut self,
        changes: &mut Vec<Change>,
        at: Moment,
        dead: impl Fn(SessionId) -> bool,
    ) {
        let ended = |place: &Place| place.deadline <= at.now || dead(place.session);
        self.drop_those(changes, ended, What::Expired);
        self.promote(at, changes);
    }

    /// Takes the lock away from all its holders, or from the holder of one fence. Every later fence is larger.
    pub fn evict(&mut self, fence: Option<Fence>, at: Moment) -> Vec<Change> {
        let mut changes = self.sweep(at);
        let meant = |place: &Place| match fence {
            Some(fence) => place.owns(fence),
            None => place.fence.is_some(),
        };
        self.drop_those(&mut changes, meant, What::Evicted);
        self.promote(at, &mut changes);
        changes
    }

    /// Where a claim stands as the last operation left it.
    pub fn standing(&self, id: ClaimId, at: Moment) -> Standing {
        match self.find(id) {
            Some(index) => self.standing_at(index, at),
            None => Standing::Gone,
        }
    }

    fn standing_at(&self, index: usize, at: Moment) -> Standing {
        match self.places[index].fence {
            Some(fence) => Standing::Held(self.held(fence)),
            None => Standing::Waiting {
                ahead: u32::try_from(index).unwrap_or(u32::MAX),
                look_again: Duration::from_micros(self.look_again(index).saturating_sub(at.now)),
            },
        }
    }

    /// The changes of a sweep to other claims than the one that asks: an end told beside the answer could be taken for
    /// the end of a claim that has just joined again.
    fn sweep_for(&mut self, changes: &mut Vec<Change>, asker: ClaimId, at: Moment) {
        self.sweep_into(changes, at, |_| false);
        if !changes.is_empty() {
            changes.retain(|change| change.claim != asker);
        }
    }

    /// A claim that is already in the line asks again.
    fn again(&mut self, index: usize, ask: &Ask, at: Moment, changes: &mut Vec<Change>) {
        let place = &mut self.places[index];
        place.lease = ask.lease;
        place.heard(at.now);
        if place.fence.is_some() && ask.mode.weight() < place.weight {
            place.weight = ask.mode.weight();
            self.promote(at, changes);
        }
    }

    fn admits(&self, ask: &Ask, joins: bool, at: Moment) -> Result<(), Refusal> {
        let (weight, capacity) = (ask.mode.weight(), ask.mode.capacity());
        if weight == 0 || weight > capacity {
            return Err(Refusal::Weight);
        }
        if !self.is_idle() && self.capacity != capacity {
            return Err(Refusal::Capacity(self.capacity));
        }
        if joins && ask.waits && self.places.len() >= LINE_MAX {
            return Err(Refusal::Full);
        }
        if joins && self.last.max(at.floor) > last_before(self.waiters().len() + 1) {
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
        for place in &self.places[first..self.held] {
            if let Some(fence) = place.fence {
                changes.push(place.change(What::Granted(self.held(fence))));
            }
        }
    }

    /// Grants to the first waiter, which must fit. Its deadline does not move: only its own session moves it.
    fn grant_next(&mut self, at: Moment) {
        // A floor that jumped since the waiters were let in must not leave them without fences.
        let floor = at.floor.min(last_before(self.waiters().len()));
        let fence = self.last.max(floor).saturating_add(1);
        self.places[self.held].fence = Some(Fence::new(fence));
        self.last = block_end(fence);
        self.held += 1;
    }

    /// The unused part of a block can be given out again only while no later one was granted.
    fn give_back(&mut self, first: u64, used: u32) {
        if self.last == block_end(first) {
            // A stored line may hold any number.
            self.last = first.saturating_add(u64::from(used.clamp(1, FENCE_BLOCK)) - 1);
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

    /// Takes claims out of the line, in order of arrival.
    fn drop_those(
        &mut self,
        changes: &mut Vec<Change>,
        those: impl Fn(&Place) -> bool,
        what: What,
    ) {
        if !self.places.iter().any(&those) {
            return;
        }
        self.places.retain(|place| {
            let goes = those(place);
            if goes {
                changes.push(place.change(what));
            }
            !goes
        });
        self.held = holding(&self.places);
    }
}

/// How many of the places hold: the first ones.
fn holding(places: &[Place]) -> usize {
    let holders = places.iter().take_while(|place| place.fence.is_some());
    holders.count()
}

/// The largest fence that may be spent before this many blocks are still to come.
fn last_before(blocks: usize) -> u64 {
    FENCE_MAX.saturating_sub((blocks as u64).saturating_mul(u64::from(FENCE_BLOCK)))
}
