//! One task per client keeps every grant and every place in line alive, and tells losses on time.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::JoinSet;

use super::grant::Grant;
use super::manager::Manager;
use super::table::{Beating, Entry, News, Phase};
use super::timeout::within;
use crate::claim::{Claim, ClaimId};
use crate::clock::{Clock, Micros, micros};
use crate::engine::{Ended, Session, Standing};

/// One call for claims of similar lease. Dropped, it gives up on the claims that were not answered for.
struct Beat {
    manager: Weak<Manager>,
    number: u64,
    sent: Micros,
    claims: Vec<Arc<Claim>>,
    failed: String,
}

/// Runs until the client is gone. The calls under way end with it.
pub(super) async fn run(renewals: Renewals, session: Arc<dyn Session>, clock: Clock) {
    let manager = renewals.0.clone();
    let mut calls = JoinSet::new();
    let mut number = 0;
    loop {
        let Some(alive) = manager.upgrade() else {
            return;
        };
        alive.tell_ended();
        for claims in alive.due() {
            number += 1;
            let beat = alive.begin(number, claims, manager.clone());
            let _ = calls.spawn(say(session.clone(), beat));
        }
        let wake = alive.next_wake();
        let earlier = alive.wake.clone();
        let mut sooner = pin!(earlier.notified());
        // Armed before the last look, so that a claim that came meanwhile is not slept over.
        let _ = sooner.as_mut().enable();
        if alive.next_wake() < wake {
            continue;
        }
        drop(alive);
        tokio::select! {
            Some(_) = calls.join_next() => {}
            () = sleep(&clock, wake) => {}
            () = sooner => {}
        }
    }
}

/// Tokio's timers stand still in suspend, so no sleep is long: a loss is told soon after the machine wakes.
const LONGEST_SLEEP: Micros = 60_000_000;

async fn sleep(clock: &Clock, wake: Micros) {
    if wake == Micros::MAX {
        return std::future::pending().await;
    }
    clock
        .sleep_until(wake.min(clock.now() + LONGEST_SLEEP))
        .await;
}

/// A beat has a timeout of its own, so that one silent call cannot use up the lease. The longest lease decides: no claim
/// has less time for its answer because of another.
async fn say(session: Arc<dyn Session>, mut beat: Beat) {
    let longest = beat.claims.iter().map(|claim| claim.lease).max();
    let patience = longest.unwrap_or(Duration::from_secs(1)) / 3;
    let heard = |claim: &Claim, standing| {
        if let Some(manager) = beat.manager.upgrade() {
            manager.stands(claim, beat.number, beat.sent, standing);
        }
    };
    let answer = within(patience, session.heartbeat(&beat.claims, &heard)).await;
    beat.failed = match answer {
        None => "the engine gave no answer in time".to_owned(),
        Some(Err(error)) => error.to_string(),
        Some(Ok(())) => "the engine did not answer for them".to_owned(),
    };
}

impl Drop for Beat {
    fn drop(&mut self) {
        if let Some(manager) = self.manager.upgrade() {
            manager.ended(self);
        }
    }
}

/// A claim that is due, or nearly so.
struct Near {
    lease: Duration,
    said: Micros,
    due: Micros,
    id: ClaimId,
}

/// Groups in which the longest lease is at most a fifth longer than the shortest. In each the claims come first that were
/// not renewed for longest: a call that is cut short leaves out others each time.
fn similar(mut rest: Vec<Near>) -> Vec<Vec<Near>> {
    rest.sort_unstable_by_key(|near| near.lease);
    let mut groups = Vec::new();
    while let Some(shortest) = rest.first() {
        let most = shortest.lease * 6 / 5;
        let longer = rest.split_off(rest.partition_point(|near| near.lease <= most));
        rest.sort_unstable_by_key(|near| near.said);
        groups.push(std::mem::replace(&mut rest, longer));
    }
    groups
}

impl Manager {
    /// The claims to speak of now, a list for each call. A claim that is nearly due comes along rather than cause a
    /// call of its own.
    fn due(&self) -> Vec<Vec<ClaimId>> {
        let now = self.clock.now();
        let table = self.table.lock();
        let near = table
            .iter()
            .filter(|(_, entry)| {
                let soon = now.saturating_add(micros(entry.lease) / 8);
                !entry.is_asking() && entry.beating.is_none() && entry.due <= soon
            })
            .map(|(id, entry)| Near {
                lease: entry.lease,
                said: entry.said,
                due: entry.due,
                id: *id,
            })
            .collect();
        drop(table);
        similar(near)
            .into_iter()
            .filter(|group| group.iter().any(|near| near.due <= now))
            .map(|group| group.iter().map(|near| near.id).collect())
            .collect()
    }

    fn begin(&self, number: u64, ids: Vec<ClaimId>, manager: Weak<Self>) -> Beat {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let claims = ids.into_iter().filter_map(|id| {
            let entry = table.get_mut(&id)?;
            let claim = entry.claim()?;
            entry.beating = Some(Beating {
                number,
                overtaken: false,
            });
            // Should the call fail, it is tried again soon. The last word of a fixed lease is said once: a second one
            // would be a renewal.
            let again = (micros(entry.lease) / 10).max(10_000);
            entry.due = match entry.renews() {
                true => now.saturating_add(again),
                false => Micros::MAX,
            };
            Some(claim)
        });
        Beat {
            claims: claims.collect(),
            manager,
            number,
            sent: now,
            failed: "the call was dropped".to_owned(),
        }
    }

    /// A call is over. The claims that it brought no answer for are unsure, and due again.
    fn ended(&self, beat: &Beat) {
        let mut table = self.table.lock();
        let mut unheard = 0;
        for claim in &beat.claims {
            if let Some(entry) = table.get_mut(&claim.id)
                && entry.under_way(beat.number).is_some()
            {
                unheard += 1;
                entry.confirmed.set(false);
                if entry.renews()
                    && let Some(grant) = entry.grant()
                {
                    grant.set_unsure(true);
                }
            }
        }
        drop(table);
        if unheard > 0 {
            let (claims, why) = (beat.claims.len(), &*beat.failed);
            tracing::warn!(unheard, claims, why, "a heartbeat failed");
        }
    }

    /// When the task has to look again.
    ///
    /// A wake that was planned stays, also when nothing needs it any more: locks that come and go then cost one idle
    /// look in a while, not one each.
    fn next_wake(&self) -> Micros {
        let table = self.table.lock();
        let wake = table.values().map(Entry::wake).min();
        let wake = wake.unwrap_or(Micros::MAX);
        let planned = self.asleep_until.load(Ordering::SeqCst);
        let wake = match planned > self.clock.now() {
            true => wake.min(planned),
            false => wake,
        };
        self.asleep_until.store(wake, Ordering::SeqCst);
        wake
    }

    /// The answer of one heartbeat: where a claim stands.
    fn stands(&self, claim: &Claim, number: u64, sent: Micros, standing: Standing) {
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(&claim.id) else {
            return;
        };
        // A second answer of one call counts as an old one.
        let overtaken = entry.under_way(number).is_none_or(|beat| beat.overtaken);
        let grant = entry.grant().cloned();
        match (standing, grant) {
            (Standing::Held(held), Some(grant)) if grant.is(&held) => {
                entry.heard(sent, overtaken);
                // An answer that may be older than an event does not take its wish back.
                let news = (held.wanted || !overtaken) && !grant.set_wanted(held.wanted);
                drop(table);
                if held.wanted && news {
                    self.observer.grant_changed(&grant);
                }
            }
            // The push was lost; this repairs it.
            (Standing::Held(held), None) => {
                entry.heard(sent, overtaken);
                self.settle(table, claim.id, News::Granted(held));
            }
            (Standing::Waiting { look_again, .. }, None) => {
                entry.heard(sent, overtaken);
                entry.confirmed.set(true);
                let look = self.clock.now().saturating_add(micros(look_again));
                entry.due = entry.due.min(look);
                let due = entry.due;
                drop(table);
                self.wake_by(due);
            }
            // The grant was pushed while this answer was on its way.
            (Standing::Waiting { .. }, Some(_)) if overtaken => entry.heard(sent, overtaken),
            // Gone, or held under another fence: our grant has ended.
            _ => {
                let late = entry.valid_until() <= self.clock.now();
                let why = if late {
                    Ended::Expired
                } else {
                    Ended::Forgotten
                };
                self.settle(table, claim.id, News::Ended(why));
            }
        }
    }

    /// Tells the grants whose time is over, and looks at those parked long enough.
    fn tell_ended(&self) {
        let now = self.clock.now();
        let mut ended: Vec<(Arc<Grant>, bool)> = Vec::new();
        let mut parked: Vec<Arc<Grant>> = Vec::new();
        for entry in self.table.lock().values_mut() {
            let Phase::Held {
                grant,
                parked: kept,
            } = &mut entry.phase
            else {
                continue;
            };
            if grant.until() <= now {
                let minimum = kept.is_some_and(|kept| !kept.reusable && kept.until > now);
                ended.push((grant.clone(), minimum));
            } else if kept.is_some_and(|kept| kept.until <= now) {
                *kept = None;
                parked.push(grant.clone());
            }
        }
        for (grant, minimum) in ended {
            grant.lose(Ended::Expired);
            // The engine may still have it. Others need not wait for a grant that is lost to us, unless its minimum
            // hold is to keep them out: then it goes when that is over.
            if !minimum {
                self.discard(&grant);
                self.observer.grant_changed(&grant);
            }
        }
        parked
            .iter()
            .for_each(|grant| self.observer.grant_changed(grant));
    }
}

/// Tells every grant when the runtime that renews them goes: from then on each of them only runs out, and the client gives
/// no other. It is made before the task is, which may be dropped without ever having run.
pub(super) struct Renewals(pub(super) Weak<Manager>);

impl Drop for Renewals {
    fn drop(&mut self) {
        if let Some(manager) = self.0.upgrade() {
            manager.reaper.progress.close();
            manager.all_lost("the runtime that connected the client is gone");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Mode;
    use crate::engine::{Identity, Memory};
    use crate::name::Name;
    use crate::session::Confirmed;

    async fn lock(manager: &Manager) -> Arc<Grant> {
        let name = Name::new("x").unwrap();
        let claim = Claim::new(name, Mode::Mutex, Duration::from_secs(3));
        let granted = manager
            .acquire(claim, true, &Confirmed::default())
            .await
            .unwrap();
        granted.expect("no other client is there")
    }

    /// Lets the heartbeat task run as far as it gets, and says when it means to wake.
    async fn planned(manager: &Manager) -> Micros {
        tokio::task::yield_now().await;
        manager.asleep_until.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn locks_that_come_and_go_wake_the_task_once_in_a_while() {
        let clock = Clock::simulated();
        let engine = Memory::new(clock.clone());
        let who = Identity::of_this_process();
        let observer = Arc::<crate::turns::Queues>::default();
        let manager = Manager::open(&engine, &who, &clock, observer)
            .await
            .unwrap();
        // Gone again before the task has run once.
        let _ = manager.release(&lock(&manager).await).await.unwrap();
        let wake = planned(&manager).await;
        assert_eq!(wake, clock.now() + 1_000_000, "a third of the lease");
        for _ in 0..3 {
            tokio::time::advance(Duration::from_millis(10)).await;
            let grant = lock(&manager).await;
            assert_eq!(planned(&manager).await, wake);
            let _ = manager.release(&grant).await.unwrap();
            assert_eq!(planned(&manager).await, wake);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(
            planned(&manager).await,
            Micros::MAX,
            "nothing is left to do"
        );
    }
}
