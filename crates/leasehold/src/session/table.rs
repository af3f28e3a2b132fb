//! All claims of one client: what is asked for, what waits, what is held.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::grant::{Grant, validity};
use crate::claim::{ById, Claim, ClaimId};
use crate::clock::{Clock, Micros, micros};
use crate::engine::{Ended, Held};

/// The entries by claim id.
pub(super) type Table = ById<ClaimId, Entry>;

pub(super) struct Entry {
    pub(super) phase: Phase,
    pub(super) lease: Duration,
    /// Whether it is renewed once it is held.
    pub(super) keep_alive: bool,
    /// When the last word that the engine acknowledged was sent. Validity counts from here.
    pub(super) said: Micros,
    /// When to say the next word.
    pub(super) due: Micros,
    /// The heartbeat under way for it.
    pub(super) beating: Option<u64>,
    /// Whether somebody asked for it to be given up.
    pub(super) asked: bool,
}

pub(super) enum Phase {
    /// The claim is on its way. The engine's push may overtake its reply.
    Asking { early: Option<Outcome> },
    /// It waits in the engine's line.
    Waiting {
        claim: Arc<Claim>,
        tell: Option<oneshot::Sender<Outcome>>,
    },
    /// It holds.
    Held {
        grant: Arc<Grant>,
        /// Kept without a user until then.
        parked: Option<Micros>,
    },
}

/// How an attempt ended.
pub(super) enum Outcome {
    Granted(Held),
    /// A try found no room.
    Busy,
    /// Granted, and told after our own lease ended: by now it may be somebody else's, or still ours.
    Late,
    Ended(Ended),
}

impl Entry {
    pub(super) fn new(lease: Duration, keep_alive: bool) -> Self {
        Self {
            phase: Phase::Asking { early: None },
            lease,
            keep_alive,
            said: 0,
            due: Micros::MAX,
            beating: None,
            asked: false,
        }
    }

    /// The engine acknowledged a word that was sent then.
    pub(super) fn heard(&mut self, sent: Micros) {
        self.said = self.said.max(sent);
        self.due = self.said.saturating_add(micros(self.lease) / 3);
        if let Phase::Held { grant, .. } = &self.phase {
            grant.extend(self.valid_until());
            if !self.keep_alive {
                self.due = Micros::MAX;
            }
        }
    }

    /// The claim holds from now on; the engine keeps it so long without a word.
    pub(super) fn hold(
        &mut self,
        claim: Claim,
        held: Held,
        kept: Duration,
        now: Micros,
        clock: &Clock,
    ) -> Arc<Grant> {
        let waited = matches!(self.phase, Phase::Waiting { .. });
        let valid = now..self.valid_until();
        let grant = Arc::new(Grant::new(claim, held, kept, valid, clock));
        if self.asked {
            grant.asked().cancel();
        }
        self.phase = Phase::Held {
            grant: grant.clone(),
            parked: None,
        };
        if !self.keep_alive {
            // One last word, so that a fixed lease is counted from the grant and not from the wait.
            self.due = if waited { 0 } else { Micros::MAX };
        }
        grant
    }

    /// The end of validity by the last word that the engine acknowledged.
    pub(super) fn valid_until(&self) -> Micros {
        validity(self.said, self.lease)
    }

    /// The claim to keep alive; none while it is on its way.
    pub(super) fn claim(&self) -> Option<Arc<Claim>> {
        match &self.phase {
            Phase::Asking { .. } => None,
            Phase::Waiting { claim, .. } => Some(claim.clone()),
            Phase::Held { grant, .. } => Some(grant.claim()),
        }
    }

    pub(super) fn grant(&self) -> Option<&Arc<Grant>> {
        match &self.phase {
            Phase::Held { grant, .. } => Some(grant),
            _ => None,
        }
    }

    pub(super) fn is_asking(&self) -> bool {
        matches!(self.phase, Phase::Asking { .. })
    }

    /// When something has to be done about it.
    pub(super) fn wake(&self) -> Micros {
        let due = match self.beating {
            Some(_) => Micros::MAX,
            None => self.due,
        };
        match &self.phase {
            Phase::Asking { .. } => Micros::MAX,
            Phase::Waiting { .. } => due,
            Phase::Held { grant, parked } => {
                due.min(grant.until()).min(parked.unwrap_or(Micros::MAX))
            }
        }
    }
}
