//! The table of claims, and the way of a claim from asking to holding to giving back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::answer::within;
use super::events::Inbox;
use super::grant::{Grant, Home, State, validity};
use super::reaper::Reaper;
use super::table::{Entry, Outcome, Phase, Table};
use crate::claim::{Claim, ClaimId};
use crate::clock::{Clock, Micros, micros};
use crate::engine::{Ended, Engine, Event, Identity, Release, Session, Standing};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::sync::Shared;

/// Keeps the claims of one client alive.
pub(crate) struct Keeper {
    pub(super) clock: Clock,
    pub(super) table: Shared<Table>,
    /// Tells the heartbeat task that something is due before it meant to wake.
    pub(super) wake: Arc<Notify>,
    pub(super) asleep_until: AtomicU64,
    engine: &'static str,
    session: Arc<dyn Session>,
    reaper: Reaper,
    closing: AtomicBool,
}

/// What came of asking.
pub(crate) enum Asked {
    Granted(Arc<Grant>),
    /// A try found no room.
    Busy,
}

impl Keeper {
    /// Opens a session and starts the two tasks.
    #[expect(clippy::disallowed_methods, reason = "the session starts tasks")]
    pub(crate) async fn open(
        engine: &dyn Engine,
        who: &Identity,
        clock: Clock,
    ) -> Result<Arc<Self>> {
        let this = Arc::new(OnceLock::<Weak<Self>>::new());
        let route = this.clone();
        let inbox = Inbox::new(move |event| {
            if let Some(keeper) = route.get().and_then(Weak::upgrade) {
                keeper.take(event);
            }
        });
        let session = engine.open(who, inbox).await?;
        let keeper = Arc::new(Self {
            clock: clock.clone(),
            table: Shared::default(),
            wake: Arc::default(),
            asleep_until: AtomicU64::new(Micros::MAX),
            engine: engine.kind(),
            session: session.clone(),
            reaper: Reaper::start(session.clone(), clock.clone()),
            closing: AtomicBool::new(false),
        });
        let _ = this.set(Arc::downgrade(&keeper));
        let beats = super::heartbeat::run(Arc::downgrade(&keeper), session, clock);
        drop(tokio::spawn(beats));
        Ok(keeper)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Asks the engine, and waits if the claim waits. Dropped at any await, it leaves at most one release behind.
    pub(crate) async fn ask(
        &self,
        claim: Claim,
        keep_alive: bool,
        home: Weak<dyn Home>,
    ) -> Result<Asked> {
        let mut claim = Arc::new(claim);
        loop {
            // Armed before the first byte leaves.
            let armed = self.arm(&claim, keep_alive, home.clone())?;
            let sent = self.clock.now();
            let call = self.session.claim(&claim);
            let standing = match within(patience(&claim), call).await {
                Some(Ok(standing)) => standing,
                Some(Err(error)) => {
                    if !error.may_have_happened() {
                        armed.forget();
                    }
                    return Err(error.of(&claim.name));
                }
                None => return Err(self.late(&claim)),
            };
            let outcome = match standing {
                Standing::Busy => {
                    armed.forget();
                    return Ok(Asked::Busy);
                }
                Standing::Gone => Outcome::Ended(Ended::Forgotten),
                Standing::Held(held) => Outcome::Granted(held),
                Standing::Waiting { look_again, .. } => match self.wait(&claim, sent, look_again) {
                    Ok(outcome) => outcome,
                    Err(wait) => wait
                        .await
                        .unwrap_or(Outcome::Ended(Ended::Down("no keeper".into()))),
                },
            };
            match outcome {
                Outcome::Granted(held) => {
                    let grant = self.granted(&claim, sent, held);
                    if let Some(grant) = grant.filter(|grant| grant.state() != State::Lost) {
                        armed.disarm();
                        return Ok(Asked::Granted(grant));
                    }
                    return Err(self.late(&claim));
                }
                Outcome::Ended(Ended::Down(why)) => {
                    let error = Error::new(
                        ErrorKind::Unavailable,
                        Step::Wait,
                        format!("the session ended: {why}"),
                    );
                    return Err(error.on(self.engine).of(&claim.name));
                }
                // Our place in line is gone (a pause, an eviction): join again, as somebody new.
                Outcome::Ended(_) => {
                    drop(armed);
                    let mut again = (*claim).clone();
                    again.id = ClaimId::random();
                    claim = Arc::new(again);
                }
            }
        }
    }

    /// Gives a grant back and says whether it was still ours. The caller has just looked at its state.
    pub(crate) async fn give_back(&self, grant: &Arc<Grant>) -> Result<Release> {
        // Counted before it leaves the table, so that a shutdown waits for it.
        let _open = self.reaper.progress.begin();
        let still = self.take_out(grant.claim.id);
        if grant.why_lost().is_some() {
            if still {
                self.reap(grant);
            }
            return Ok(Release::Gone);
        }
        // Should this future be dropped, or the call fail, the reaper goes on with it.
        let mut backup = Backup(Some((self, grant)));
        let call = self.session.release(&grant.claim, grant.turns());
        match within(patience(&grant.claim), call).await {
            Some(Ok(release)) => {
                backup.0 = None;
                if release == Release::Gone {
                    grant.lose(Ended::Forgotten);
                }
                Ok(release)
            }
            Some(Err(error)) => Err(error.of(&grant.claim.name)),
            None => Err(Error::new(
                ErrorKind::TimedOut,
                Step::Release,
                "no answer within the lease",
            )
            .on(self.engine)
            .of(&grant.claim.name)
            .perhaps()),
        }
    }

    /// Gives a grant back in the background.
    pub(crate) fn discard(&self, grant: &Arc<Grant>) {
        if self.take_out(grant.claim.id) {
            self.reap(grant);
        }
    }

    /// Makes a held write claim a read claim.
    pub(crate) async fn downgrade(&self, grant: &Grant, mode: crate::claim::Mode) -> Result<()> {
        let mut claim = (*grant.claim).clone();
        claim.mode = mode;
        let sent = self.clock.now();
        match within(patience(&claim), self.session.claim(&claim)).await {
            Some(Ok(Standing::Held(_))) => {
                if let Some(entry) = self.table.lock().get_mut(&claim.id) {
                    entry.heard(sent);
                }
                Ok(())
            }
            Some(Ok(_)) => {
                grant.lose(Ended::Forgotten);
                Err(Error::new(
                    ErrorKind::Lost,
                    Step::Hold,
                    "the write lock was no longer held",
                )
                .of(&claim.name))
            }
            Some(Err(error)) => Err(error.of(&claim.name)),
            None => Err(self.late(&claim)),
        }
    }

    /// Keeps a grant without a user for a while; its home is told to look when the time is over.
    pub(crate) fn park(&self, grant: &Grant, until: Option<Micros>) {
        if let Some(entry) = self.table.lock().get_mut(&grant.claim.id)
            && let Phase::Held { parked, .. } = &mut entry.phase
        {
            *parked = until;
        }
        if let Some(until) = until {
            self.wake_by(until);
        }
    }

    /// Refuses new claims from now on; whoever waits is told.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let mut table = self.table.lock();
        for entry in table.values_mut() {
            if let Phase::Waiting(_) = entry.phase {
                let asking = Phase::Asking { early: None };
                if let Phase::Waiting(waiter) = std::mem::replace(&mut entry.phase, asking) {
                    let _ = waiter.send(Outcome::Ended(Ended::Down(
                        "the client was shut down".into(),
                    )));
                }
            }
        }
    }

    /// Waits until nothing is held or to be given back, or the time is over; then closes the session. Says how
    /// many claims were left to their leases.
    pub(crate) async fn drain(&self, patience: Duration) -> Result<usize> {
        let progress = self.reaper.progress.clone();
        let empty = async {
            loop {
                let mut changed = std::pin::pin!(progress.changed.notified());
                let _ = changed.as_mut().enable();
                if self.left() == 0 {
                    return;
                }
                changed.await;
            }
        };
        let drained = tokio::time::timeout(patience, empty).await;
        let left = if drained.is_ok() { 0 } else { self.left() };
        self.all_lost("the client was shut down");
        self.session.close().await.map(|()| left)
    }

    fn left(&self) -> usize {
        self.table.lock().len() + self.reaper.progress.open()
    }

    fn late(&self, claim: &Claim) -> Error {
        Error::new(
            ErrorKind::TimedOut,
            Step::Claim,
            "the answer did not come within the lease",
        )
        .on(self.engine)
        .of(&claim.name)
        .perhaps()
    }

    fn arm<'a>(
        &'a self,
        claim: &'a Arc<Claim>,
        keep_alive: bool,
        home: Weak<dyn Home>,
    ) -> Result<Armed<'a>> {
        let entry = Entry::new(claim.clone(), keep_alive, home);
        let mut table = self.table.lock();
        // Looked at under the lock: after `close` has gone through the table nothing new gets in.
        if self.closing.load(Ordering::Acquire) {
            return Err(Error::closed(Step::Claim).of(&claim.name));
        }
        let _ = table.insert(claim.id, entry);
        Ok(Armed {
            keeper: self,
            claim: Some(claim),
        })
    }

    /// The engine let the claim into its line. The grant may have come before this reply.
    fn wait(
        &self,
        claim: &Claim,
        sent: Micros,
        look_again: Duration,
    ) -> Result<Outcome, oneshot::Receiver<Outcome>> {
        let (tell, told) = oneshot::channel();
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(&claim.id) else {
            return Ok(Outcome::Ended(Ended::Forgotten));
        };
        entry.heard(sent);
        if let Phase::Asking { early } = &mut entry.phase
            && let Some(outcome) = early.take()
        {
            return Ok(outcome);
        }
        if self.closing.load(Ordering::Acquire) {
            return Ok(Outcome::Ended(Ended::Down(
                "the client was shut down".into(),
            )));
        }
        entry.phase = Phase::Waiting(tell);
        entry.due = entry
            .due
            .min(self.clock.now().saturating_add(micros(look_again)));
        let due = entry.due;
        drop(table);
        self.wake_by(due);
        Err(told)
    }

    /// The entry holds from now on; none if it ended meanwhile.
    fn granted(
        &self,
        claim: &Claim,
        sent: Micros,
        held: crate::engine::Held,
    ) -> Option<Arc<Grant>> {
        let mut table = self.table.lock();
        let entry = table.get_mut(&claim.id)?;
        let grant = match entry.grant() {
            Some(grant) => grant.clone(),
            None => {
                entry.heard(sent);
                entry.hold(held, false, &self.clock)
            }
        };
        let wake = entry.wake();
        drop(table);
        self.wake_by(wake);
        Some(grant)
    }

    /// Routes one event.
    fn take(&self, event: Event) {
        match event {
            Event::Granted(id, held) => self.settle(self.table.lock(), id, Outcome::Granted(held)),
            Event::Ended(id, why) => self.settle(self.table.lock(), id, Outcome::Ended(why)),
            Event::Wanted(id) => {
                let grant = self.table.lock().get(&id).and_then(Entry::grant).cloned();
                if let Some(grant) = grant {
                    grant.set_wanted(true);
                    grant.look();
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
            (Phase::Waiting(_), Outcome::Granted(held)) => {
                let asking = Phase::Asking { early: None };
                let Phase::Waiting(waiter) = std::mem::replace(&mut entry.phase, asking) else {
                    return;
                };
                let over = validity(entry.said, entry.claim.lease) <= self.clock.now();
                let outcome = if over {
                    // Told after our own lease ended: by now it may be somebody else's.
                    Outcome::Ended(Ended::Expired)
                } else {
                    let _ = entry.hold(held, true, &self.clock);
                    Outcome::Granted(held)
                };
                // A waiter that is gone has armed the reaper.
                let _ = waiter.send(outcome);
                let wake = entry.wake();
                drop(table);
                self.wake_by(wake);
            }
            (Phase::Waiting(_), Outcome::Ended(why)) => {
                let asking = Phase::Asking { early: None };
                if let Phase::Waiting(waiter) = std::mem::replace(&mut entry.phase, asking) {
                    let _ = waiter.send(Outcome::Ended(why));
                }
            }
            (Phase::Held { grant, .. }, Outcome::Granted(held)) => grant.set_wanted(held.wanted),
            (Phase::Held { grant, .. }, Outcome::Ended(why)) => {
                let grant = grant.clone();
                let _ = table.remove(&id);
                drop(table);
                grant.lose(why);
                grant.look();
                self.reaper.progress.changed.notify_waiters();
            }
        }
    }

    fn all_lost(&self, why: &str) {
        let ids: Vec<_> = self.table.lock().keys().copied().collect();
        for id in ids {
            self.settle(
                self.table.lock(),
                id,
                Outcome::Ended(Ended::Down(why.to_owned())),
            );
        }
    }

    /// Whether the entry was still there.
    fn take_out(&self, id: ClaimId) -> bool {
        let there = self.table.lock().remove(&id).is_some();
        if self.closing.load(Ordering::Acquire) {
            self.reaper.progress.changed.notify_waiters();
        }
        there
    }

    fn reap(&self, grant: &Grant) {
        self.reaper.give_back(grant.claim.clone(), grant.turns());
    }

    /// Wakes the heartbeat task if it would sleep past this.
    fn wake_by(&self, when: Micros) {
        if when < self.asleep_until.fetch_min(when, Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }
}

/// How long one call may take: an answer after the lease is worth nothing.
fn patience(claim: &Claim) -> Duration {
    claim.lease.min(Duration::from_secs(60))
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The heartbeat task sees that the keeper is gone, and ends.
        self.wake.notify_one();
    }
}

/// A claim that may be in the engine's line. Dropping it takes the claim out of the line, in the background.
struct Armed<'a> {
    keeper: &'a Keeper,
    claim: Option<&'a Arc<Claim>>,
}

impl Armed<'_> {
    /// The claim is held by a grant now.
    fn disarm(mut self) {
        self.claim = None;
    }

    /// The claim is surely not in the line.
    fn forget(mut self) {
        if let Some(claim) = self.claim.take() {
            let _ = self.keeper.take_out(claim.id);
        }
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            let _ = self.keeper.take_out(claim.id);
            self.keeper.reaper.give_back(claim.clone(), 0);
        }
    }
}

/// A release under way. Dropping it leaves the rest to the reaper.
struct Backup<'a>(Option<(&'a Keeper, &'a Arc<Grant>)>);

impl Drop for Backup<'_> {
    fn drop(&mut self) {
        if let Some((keeper, grant)) = self.0.take() {
            keeper.reap(grant);
        }
    }
}
