//! Whom an event concerns.

use std::sync::{Arc, MutexGuard};

use super::keeper::Keeper;
use super::table::{Entry, Outcome, Phase, Table};
use crate::claim::ClaimId;
use crate::engine::{Ended, Event};

impl Keeper {
    /// Routes one event.
    pub(super) fn take(&self, event: Event) {
        match event {
            Event::Granted(id, held) => self.settle(self.table.lock(), id, Outcome::Granted(held)),
            Event::Ended(id, why) => self.settle(self.table.lock(), id, Outcome::Ended(why)),
            Event::Wanted(id) => {
                let grant = self.table.lock().get(&id).and_then(Entry::grant).cloned();
                if let Some(grant) = grant {
                    let _ = grant.set_wanted(true);
                    self.look(&grant);
                }
            }
            Event::Asked(id) => {
                let grant = self.table.lock().get_mut(&id).and_then(|entry| {
                    entry.asked = true;
                    entry.grant().cloned()
                });
                if let Some(grant) = grant {
                    grant.asked().cancel();
                    self.look(&grant);
                }
            }
            Event::Unsure => {
                let now = self.clock.now();
                for entry in self.table.lock().values_mut() {
                    if let Some(grant) = entry.grant() {
                        grant.set_unsure(true);
                    }
                    entry.due = entry.due.min(now);
                }
                self.wake_by(now);
            }
            Event::Down(why) => self.all_lost(&why),
        }
    }

    /// A claim was granted, or is gone: tells whoever waits for it or holds it.
    pub(super) fn settle(&self, mut table: MutexGuard<'_, Table>, id: ClaimId, outcome: Outcome) {
        let Some(entry) = table.get_mut(&id) else {
            return;
        };
        match (&mut entry.phase, outcome) {
            (Phase::Asking { early }, outcome) => *early = Some(outcome),
            (Phase::Waiting { claim, tell }, outcome) => {
                // Whoever waits takes the entry on from here.
                let Some(waiter) = tell.take() else { return };
                let claim = claim.clone();
                let now = self.clock.now();
                let over = entry.valid_until() <= now;
                let outcome = match outcome {
                    Outcome::Granted(_) if over => Outcome::Late,
                    Outcome::Granted(held) => {
                        let kept = self.session.lease(&claim);
                        let claim = Arc::unwrap_or_clone(claim);
                        let _ = entry.hold(claim, held, kept, now, &self.clock);
                        Outcome::Granted(held)
                    }
                    other => other,
                };
                // A waiter that is gone has armed the reaper.
                let _ = waiter.send(outcome);
                let wake = entry.wake();
                drop(table);
                self.wake_by(wake);
            }
            (Phase::Held { grant, .. }, Outcome::Granted(held)) => {
                let _ = grant.set_wanted(held.wanted);
            }
            (Phase::Held { .. }, Outcome::Busy | Outcome::Late) => {}
            (Phase::Held { grant, .. }, Outcome::Ended(why)) => {
                let grant = grant.clone();
                let _ = table.remove(&id);
                drop(table);
                grant.lose(why);
                self.look(&grant);
                self.reaper.progress.tell();
            }
        }
    }

    pub(super) fn all_lost(&self, why: &str) {
        let ids: Vec<_> = self.table.lock().keys().copied().collect();
        for id in ids {
            self.settle(
                self.table.lock(),
                id,
                Outcome::Ended(Ended::Down(why.to_owned())),
            );
        }
    }
}
