//! One task per client keeps every grant and every place in line alive, and tells losses on time.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::answer::within;
use super::grant::Grant;
use super::keeper::Keeper;
use super::table::{Entry, Outcome, Phase};
use crate::claim::Claim;
use crate::clock::{Clock, Micros, micros};
use crate::engine::{Ended, Session, Standing};
use crate::error::Result;

/// One call for all that is due.
struct Beat {
    sent: Micros,
    claims: Vec<Arc<Claim>>,
}

type Answer = (Beat, Option<Result<Vec<Standing>>>);

/// Runs until the client is gone.
pub(super) async fn run(keeper: Weak<Keeper>, session: Arc<dyn Session>, clock: Clock) {
    let mut under_way: Option<Pin<Box<dyn Future<Output = Answer> + Send>>> = None;
    loop {
        let Some(alive) = keeper.upgrade() else {
            return;
        };
        if under_way.is_none()
            && let Some(beat) = alive.due()
        {
            under_way = Some(Box::pin(say(session.clone(), beat)));
        }
        let wake = alive.next_wake(under_way.is_some());
        let earlier = alive.wake.clone();
        let mut sooner = pin!(earlier.notified());
        // Armed before the last look, so that a claim that came meanwhile is not slept over.
        let _ = sooner.as_mut().enable();
        if alive.next_wake(under_way.is_some()) < wake {
            continue;
        }
        drop(alive);
        let answer = async {
            match &mut under_way {
                Some(call) => call.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            (beat, answer) = answer => {
                under_way = None;
                let Some(alive) = keeper.upgrade() else { return };
                alive.answered(beat, answer);
            }
            () = sleep(&clock, wake) => {}
            () = sooner => {}
        }
        if let Some(alive) = keeper.upgrade() {
            alive.tell_what_ended();
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

/// A beat has a timeout of its own, so that one silent call cannot use up the lease.
async fn say(session: Arc<dyn Session>, beat: Beat) -> Answer {
    let shortest = beat.claims.iter().map(|claim| claim.lease).min();
    let patience = shortest.unwrap_or(Duration::from_secs(1)) / 3;
    let call = session.heartbeat(&beat.claims);
    let answer = within(patience, call).await;
    (beat, answer)
}

impl Keeper {
    /// Everything that is due. What is nearly due comes along rather than cause a call of its own.
    fn due(&self) -> Option<Beat> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let beats = |entry: &Entry| !matches!(entry.phase, Phase::Asking { .. });
        if !table.values().any(|entry| beats(entry) && entry.due <= now) {
            return None;
        }
        let mut claims = Vec::new();
        for entry in table.values_mut() {
            let lease = micros(entry.lease);
            if entry.due <= now.saturating_add(lease / 8)
                && let Some(claim) = entry.claim()
            {
                claims.push(claim);
                // Should the call fail, it is tried again soon.
                entry.due = now.saturating_add((lease / 10).max(10_000));
            }
        }
        Some(Beat { sent: now, claims })
    }

    /// When the task has to look again. While a call is under way only ends matter.
    ///
    /// A wake that was planned stays, also when nothing needs it any more: locks that come and go then cost one idle
    /// look in a while, not one each.
    fn next_wake(&self, calling: bool) -> Micros {
        let table = self.table.lock();
        let wakes = table.values().map(|entry| match (&entry.phase, calling) {
            (Phase::Held { grant, parked }, true) => {
                grant.until().min(parked.unwrap_or(Micros::MAX))
            }
            (_, true) => Micros::MAX,
            (_, false) => entry.wake(),
        });
        let wake = wakes.min().unwrap_or(Micros::MAX);
        let planned = self.asleep_until.load(Ordering::SeqCst);
        let wake = match planned > self.clock.now() {
            true => wake.min(planned),
            false => wake,
        };
        self.asleep_until.store(wake, Ordering::SeqCst);
        wake
    }

    fn answered(&self, beat: Beat, answer: Option<Result<Vec<Standing>>>) {
        match answer {
            Some(Ok(standings)) if standings.len() == beat.claims.len() => {
                for (claim, standing) in beat.claims.iter().zip(standings) {
                    self.stands(claim, beat.sent, standing);
                }
            }
            failed => {
                let why = match failed {
                    None => "no answer in time".to_owned(),
                    Some(Err(error)) => error.to_string(),
                    Some(Ok(_)) => "the engine answered for another number of claims".to_owned(),
                };
                tracing::warn!(claims = beat.claims.len(), why, "a heartbeat failed");
                let table = self.table.lock();
                let entries = beat.claims.iter().filter_map(|claim| table.get(&claim.id));
                entries
                    .filter_map(Entry::grant)
                    .for_each(|grant| grant.set_unsure(true));
            }
        }
    }

    /// The engine said where a claim stands.
    fn stands(&self, claim: &Claim, sent: Micros, standing: Standing) {
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(&claim.id) else {
            return;
        };
        let grant = entry.grant().cloned();
        match (standing, grant) {
            (Standing::Held(held), Some(grant)) if grant.is(&held) => {
                entry.heard(sent);
                drop(table);
                let before = grant.set_wanted(held.wanted);
                if held.wanted && !before {
                    self.look(&grant);
                }
            }
            // The push was lost; this repairs it.
            (Standing::Held(held), None) => {
                entry.heard(sent);
                self.settle(table, claim.id, Outcome::Granted(held));
            }
            (Standing::Waiting { look_again, .. }, None) => {
                entry.heard(sent);
                let look = self.clock.now().saturating_add(micros(look_again));
                entry.due = entry.due.min(look);
            }
            // The grant was pushed while this answer was on its way.
            (Standing::Waiting { .. }, Some(grant)) if grant.since >= sent => entry.heard(sent),
            (Standing::Unheard, grant) => {
                if let Some(grant) = grant {
                    grant.set_unsure(true);
                }
            }
            // Gone, or held under another fence: what we had ended.
            _ => {
                let late = entry.valid_until() <= self.clock.now();
                let why = if late {
                    Ended::Expired
                } else {
                    Ended::Forgotten
                };
                self.settle(table, claim.id, Outcome::Ended(why));
            }
        }
    }

    /// Tells the grants whose time is over, and looks at those parked long enough.
    fn tell_what_ended(&self) {
        let now = self.clock.now();
        let mut ended: Vec<Arc<Grant>> = Vec::new();
        let mut parked: Vec<Arc<Grant>> = Vec::new();
        for entry in self.table.lock().values_mut() {
            let Phase::Held {
                grant,
                parked: until,
            } = &mut entry.phase
            else {
                continue;
            };
            if grant.until() <= now {
                ended.push(grant.clone());
            } else if until.is_some_and(|until| until <= now) {
                *until = None;
                parked.push(grant.clone());
            }
        }
        for grant in ended {
            grant.lose(Ended::Expired);
            // The engine may still have it: what we no longer trust, others need not wait for.
            self.discard(&grant);
            self.look(&grant);
        }
        parked.iter().for_each(|grant| self.look(grant));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Mode;
    use crate::engine::{Identity, Memory};
    use crate::name::Name;

    async fn lock(keeper: &Keeper) -> Arc<Grant> {
        let name = Name::new("x").unwrap();
        let claim = Claim::new(name, Mode::Mutex, Duration::from_secs(3));
        let granted = keeper.ask(claim, true).await.unwrap();
        granted.expect("nobody else is there")
    }

    /// Lets the heartbeat task run as far as it gets, and says when it means to wake.
    async fn planned(keeper: &Keeper) -> Micros {
        tokio::task::yield_now().await;
        keeper.asleep_until.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn locks_that_come_and_go_wake_the_task_once_in_a_while() {
        let clock = Clock::simulated();
        let engine = Memory::new(clock.clone());
        let who = Identity::of_this_process();
        let keeper = Keeper::open(&engine, &who, clock.clone()).await.unwrap();
        // Gone again before the task has run once.
        let _ = keeper.give_back(&lock(&keeper).await).await.unwrap();
        let wake = planned(&keeper).await;
        assert_eq!(wake, clock.now() + 1_000_000, "a third of the lease");
        for _ in 0..3 {
            tokio::time::advance(Duration::from_millis(10)).await;
            let grant = lock(&keeper).await;
            assert_eq!(planned(&keeper).await, wake);
            let _ = keeper.give_back(&grant).await.unwrap();
            assert_eq!(planned(&keeper).await, wake);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(planned(&keeper).await, Micros::MAX, "nothing is left to do");
    }
}
