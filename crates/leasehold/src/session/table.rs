//! All claims of one client: asked for, waiting, held.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use super::grant::{Grant, validity};
use crate::claim::{ById, Claim, ClaimId};
use crate::clock::{Clock, Micros, micros};
use crate::engine::{Ended, Held};

/// The entries by claim id.
pub(super) type Table = ById<ClaimId, Entry>;

/// Whether the engine's last word about a request was that its claim waits. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Confirmed(Arc<AtomicBool>);

impl Confirmed {
    pub(super) fn set(&self, waits: bool) {
        self.0.store(waits, Ordering::Release);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

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
    pub(super) beating: Option<Beating>,
    /// Whether the holder was asked to give it up.
    pub(super) asked: bool,
    /// Whether an event said that another session waits for it.
    pub(super) wanted: bool,
    pub(super) confirmed: Confirmed,
}

/// A heartbeat under way for one claim.
pub(super) struct Beating {
    pub(super) number: u64,
    /// Whether an event came after it was sent: then its answer may be older than the event.
    pub(super) overtaken: bool,
}

pub(super) enum Phase {
    /// The claim is on its way. An event may overtake its answer, and counts all the same.
    Asking { early: Option<News> },
    /// It waits in the engine's line.
    Waiting {
        claim: Arc<Claim>,
        tell: Option<oneshot::Sender<Told>>,
    },
    /// It holds.
    Held {
        grant: Arc<Grant>,
        parked: Option<Parked>,
    },
}

/// A grant that is kept without a user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parked {
    pub(crate) until: Micros,
    /// Kept for this process (linger); otherwise to keep every process out (minimum hold).
    pub(crate) reusable: bool,
}

/// The content of an event, or of a heartbeat's answer, about a claim.
pub(super) enum News {
    Granted(Held),
    Ended(Ended),
}

/// How an attempt ended.
pub(super) enum Told {
    Holds(Arc<Grant>),
    /// A try found no room.
    Busy,
    /// Granted, and told after our own lease ended: the engine may have given it to another session by now.
    Late,
    Ended(Ended),
}

impl Entry {
    pub(super) fn new(lease: Duration, keep_alive: bool, confirmed: Confirmed) -> Self {
        Self {
            phase: Phase::Asking { early: None },
            lease,
            keep_alive,
            said: 0,
            due: Micros::MAX,
            beating: None,
            asked: false,
            wanted: false,
            confirmed,
        }
    }

    /// The engine acknowledged a word that was sent then. `overtaken`: an event came in between, and stands.
    pub(super) fn heard(&mut self, sent: Micros, overtaken: bool) {
        let planned = self.due;
        // The last word of a fixed lease may be late: the lease counts from the grant all the same.
        let sent = match &self.phase {
            Phase::Held { grant, .. } if !self.keep_alive => sent.min(grant.since),
            _ => sent,
        };
        self.said = self.said.max(sent);
        self.due = self.said.saturating_add(micros(self.lease) / 3);
        if let Phase::Held { grant, .. } = &self.phase {
            grant.extend(self.valid_until());
            if !overtaken {
                grant.set_unsure(false);
            }
        }
        if !self.renews() {
            self.due = Micros::MAX;
        } else if overtaken {
            self.due = self.due.min(planned);
        }
    }

    /// An event came: an answer that is under way does not undo it.
    pub(super) fn overtake(&mut self) {
        if let Some(beating) = &mut self.beating {
            beating.overtaken = true;
        }
    }

    /// The heartbeat of this number, if it is the one under way; it is over then.
    pub(super) fn under_way(&mut self, number: u64) -> Option<Beating> {
        self.beating.take_if(|beating| beating.number == number)
    }

    /// Whether heartbeats are owed: for a place in line always, for a lock unless its lease is fixed.
    pub(super) fn renews(&self) -> bool {
        self.keep_alive || !matches!(self.phase, Phase::Held { .. })
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
        if self.wanted {
            let _ = grant.set_wanted(true);
        }
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

    /// When something has to be done about it. While a heartbeat is under way for it, only its end matters.
    pub(super) fn wake(&self) -> Micros {
        let due = match self.beating {
            Some(_) => Micros::MAX,
            None => self.due,
        };
        match &self.phase {
            Phase::Asking { .. } => Micros::MAX,
            Phase::Waiting { .. } => due,
            // A grant lost in its minimum hold waits for the end of that.
            Phase::Held {
                grant,
                parked: Some(kept),
            } if !kept.reusable && grant.why_lost().is_some() => due.min(kept.until),
            Phase::Held { grant, parked } => due
                .min(grant.until())
                .min(parked.map_or(Micros::MAX, |parked| parked.until)),
        }
    }
}
