//! Which claims an event concerns.

use std::sync::{Arc, MutexGuard};

use super::manager::Manager;
use super::table::{Entry, News, Phase, Table, Told};
use crate::claim::ClaimId;
use crate::engine::{Ended, Event};

impl Manager {
    /// Routes one event.
    pub(super) fn take(&self, event: Event) {
        match event {
            Event::Granted(id, held) => self.settle(self.table.lock(), id, News::Granted(held)),
            Event::Ended(id, why) => self.settle(self.table.lock(), id, News::Ended(why)),
            Event::Wanted(id) => self.note(id, |entry| {
                entry.wanted = true;
                if let Some(grant) = entry.grant() {
                    let _ = grant.set_wanted(true);
                }
            }),
            Event::Asked(id) => self.note(id, |entry| {
                entry.asked = true;
                if let Some(grant) = entry.grant() {
                    grant.asked().cancel();
                }
            }),
            Event::Unsure => {
                let now = self.clock.now();
                for entry in self.table.lock().values_mut() {
                    entry.overtake();
                    entry.confirmed.set(false);
                    if entry.renews() {
                        entry.due = entry.due.min(now);
                        if let Some(grant) = entry.grant() {
                            grant.set_unsure(true);
                        }
                    }
                }
                self.wake_by(now);
            }
            Event::Down(why) => self.all_lost(&why),
        }
    }

    /// Notes a wish about a claim, also about one whose answer is still on its way.
    fn note(&self, id: ClaimId, wish: impl FnOnce(&mut Entry)) {
        let grant = self.table.lock().get_mut(&id).and_then(|entry| {
            entry.overtake();
            wish(entry);
            entry.grant().cloned()
        });
        if let Some(grant) = grant {
            self.observer.grant_changed(&grant);
        }
    }

    /// A claim was granted, or is gone: tells the task that waits for it or holds it.
    pub(super) fn settle(&self, mut table: MutexGuard<'_, Table>, id: ClaimId, news: News) {
        let Some(entry) = table.get_mut(&id) else {
            return;
        };
        entry.overtake();
        match (&mut entry.phase, news) {
            // An end is final, whatever comes after it.
            (Phase::Asking { early }, news) if !matches!(early, Some(News::Ended(_))) => {
                *early = Some(news);
            }
            (Phase::Asking { .. }, _) => {}
            (Phase::Waiting { claim, tell }, news) => {
                // The waiter takes the entry on from here.
                let Some(waiter) = tell.take() else { return };
                let claim = claim.clone();
                let now = self.clock.now();
                let over = entry.valid_until() <= now;
                let told = match news {
                    News::Ended(why) => Told::Ended(why),
                    News::Granted(_) if over => Told::Late,
                    News::Granted(held) => {
                        let kept = self.session.lease(&claim);
                        let claim = Arc::unwrap_or_clone(claim);
                        Told::Holds(entry.hold(claim, held, kept, now, &self.clock))
                    }
                };
                // A waiter that is gone has armed the reaper.
                let _ = waiter.send(told);
                let wake = entry.wake();
                drop(table);
                self.wake_by(wake);
            }
            (Phase::Held { grant, .. }, News::Granted(held)) => {
                if held.wanted {
                    let _ = grant.set_wanted(true);
                }
            }
            (Phase::Held { grant, .. }, News::Ended(why)) => {
                let grant = grant.clone();
                let _ = table.remove(&id);
                drop(table);
                grant.lose(why);
                self.observer.grant_changed(&grant);
                self.reaper.progress.tell();
            }
        }
    }

    pub(super) fn all_lost(&self, why: &str) {
        let ids: Vec<_> = self.table.lock().keys().copied().collect();
        for id in ids {
            let why = Ended::Down(why.to_owned());
            self.settle(self.table.lock(), id, News::Ended(why));
        }
    }
}
