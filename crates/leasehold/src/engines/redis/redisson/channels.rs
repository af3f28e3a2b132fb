//! The waiters of this process per channel, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use super::session::RedissonSession;
use crate::claim::{Claim, ClaimId};
use crate::clock::micros;
use crate::engine::{Clock, Identity, Micros};
use crate::sync::Shared;

/// One claim that waits.
#[derive(Debug, Clone)]
pub(super) struct Waiter {
    pub(super) claim: Arc<Claim>,
    pub(super) session: Weak<RedissonSession>,
    pub(super) who: Arc<Identity>,
    /// On the wall clock.
    pub(super) since: Micros,
    /// When it ends unless its session says another word.
    ends: Micros,
}

impl Waiter {
    pub(super) fn new(
        claim: Arc<Claim>,
        session: Weak<RedissonSession>,
        who: Arc<Identity>,
    ) -> Self {
        let mut waiter = Self {
            claim,
            session,
            who,
            since: Clock::boot().wall(),
            ends: 0,
        };
        waiter.heard();
        waiter
    }

    fn heard(&mut self) {
        let lease = micros(self.claim.lease);
        self.ends = Clock::boot().now().saturating_add(lease);
    }
}

#[derive(Debug, Default)]
struct Subscription {
    waiters: VecDeque<Waiter>,
    subscribed: bool,
    /// A task is trying for the waiters.
    trying: bool,
    /// Another message came meanwhile.
    again: bool,
}

impl Subscription {
    /// Those whose session was heard of within the lease.
    fn alive(&mut self) -> &mut VecDeque<Waiter> {
        let now = Clock::boot().now();
        self.waiters.retain(|waiter| waiter.ends > now);
        &mut self.waiters
    }
}

/// Every channel with waiters.
#[derive(Debug, Default)]
pub(super) struct Channels(Shared<HashMap<String, Subscription>>);

impl Channels {
    /// Waits from now on, behind earlier waiters.
    pub(super) fn join(&self, channel: &str, waiter: Waiter) {
        let mut channels = self.0.lock();
        let waiters = channels.entry(channel.to_owned()).or_default().alive();
        if waiters
            .iter()
            .all(|known| known.claim.id != waiter.claim.id)
        {
            waiters.push_back(waiter);
        }
    }

    /// A waiter's session said a word; whether the waiter is still there.
    pub(super) fn heard(&self, channel: &str, id: ClaimId) -> bool {
        let found = self.with(channel, |known| {
            let mut waiters = known.alive().iter_mut();
            let waiter = waiters.find(|waiter| waiter.claim.id == id);
            waiter.map(Waiter::heard).is_some()
        });
        found.unwrap_or(false)
    }

    /// Waits no longer. Whether it did, and whether the channel has no waiter now.
    pub(super) fn leave(&self, channel: &str, id: ClaimId) -> (bool, bool) {
        let left = self.with(channel, |known| {
            let before = known.waiters.len();
            known.waiters.retain(|waiter| waiter.claim.id != id);
            (known.waiters.len() < before, known.waiters.is_empty())
        });
        left.unwrap_or((false, false))
    }

    /// How many wait before this claim; all, if it does not wait.
    pub(super) fn ahead(&self, channel: &str, id: ClaimId) -> usize {
        let ahead = self.with(channel, |known| {
            let waiters = known.alive();
            let place = waiters.iter().position(|waiter| waiter.claim.id == id);
            place.unwrap_or(waiters.len())
        });
        ahead.unwrap_or(0)
    }

    pub(super) fn waiters(&self) -> Vec<Waiter> {
        let mut channels = self.0.lock();
        let alive = channels.values_mut().map(Subscription::alive);
        alive.flat_map(|waiters| waiters.iter().cloned()).collect()
    }

    pub(super) fn is_subscribed(&self, channel: &str) -> bool {
        self.with(channel, |known| known.subscribed)
            .unwrap_or(false)
    }

    pub(super) fn subscribed(&self, channel: &str) {
        let _ = self.with(channel, |known| known.subscribed = true);
    }

    /// Forgets a channel without waiters; whether it did.
    pub(super) fn forget(&self, channel: &str) -> bool {
        let mut channels = self.0.lock();
        let idle = |known: &Subscription| known.waiters.is_empty() && !known.trying;
        let forgets = channels.get(channel).is_some_and(idle);
        if forgets {
            let _ = channels.remove(channel);
        }
        forgets
    }

    /// A message came. Whether the caller is to try for the waiters: otherwise another task does, once more after this.
    pub(super) fn wake(&self, channel: &str) -> bool {
        let woken = self.with(channel, |known| {
            known.again = true;
            !std::mem::replace(&mut known.trying, true)
        });
        woken.unwrap_or(false)
    }

    /// The waiters to try for, if a message came since the last round.
    pub(super) fn next_round(&self, channel: &str) -> Option<Vec<Waiter>> {
        let round = self.with(channel, |known| {
            known.trying = std::mem::take(&mut known.again);
            known
                .trying
                .then(|| known.alive().iter().cloned().collect())
        });
        round.flatten()
    }

    fn with<T>(&self, channel: &str, look: impl FnOnce(&mut Subscription) -> T) -> Option<T> {
        self.0.lock().get_mut(channel).map(look)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::claim::Mode;
    use crate::name::Name;

    fn waiter(lease: Duration) -> Waiter {
        let claim = Claim::new(Name::new("x").unwrap(), Mode::Mutex, lease);
        let who = Arc::new(Identity::of_this_process());
        Waiter::new(Arc::new(claim), Weak::new(), who)
    }

    #[test]
    fn waiters_stand_in_order_until_they_leave_or_end() {
        let (channels, long) = (Channels::default(), Duration::from_secs(60));
        let (first, dead, last) = (waiter(long), waiter(Duration::ZERO), waiter(long));
        for waiter in [&first, &dead, &last, &first] {
            channels.join("c", waiter.clone());
        }
        assert_eq!(
            channels.ahead("c", last.claim.id),
            1,
            "the dead one does not count"
        );
        assert!(channels.heard("c", first.claim.id) && !channels.heard("c", dead.claim.id));
        assert_eq!(channels.leave("c", first.claim.id), (true, false));
        assert!(!channels.forget("c"));
        assert_eq!(channels.leave("c", last.claim.id), (true, true));
        assert!(channels.forget("c") && channels.0.lock().is_empty());
    }

    #[test]
    fn a_message_during_a_round_is_not_lost() {
        let channels = Channels::default();
        assert!(!channels.wake("c"), "no waiter");
        channels.join("c", waiter(Duration::from_secs(60)));
        assert!(channels.wake("c"));
        assert!(channels.next_round("c").is_some());
        assert!(!channels.wake("c"), "a task tries already");
        assert!(channels.next_round("c").is_some(), "once more");
        assert!(channels.next_round("c").is_none());
        assert!(channels.wake("c"));
    }
}
