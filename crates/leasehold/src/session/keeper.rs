//! What keeps the claims of one client: the table, the two tasks, and closing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::answer::within;
use super::events::Inbox;
use super::grant::{Grant, Home};
use super::reaper::Reaper;
use super::table::{Outcome, Phase, Table};
use crate::claim::{Claim, ClaimId};
use crate::clock::{Clock, Micros};
use crate::engine::{Ended, Engine, Identity, Session, Standing};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::sync::Shared;

/// Keeps the claims of one client alive.
pub(crate) struct Keeper {
    pub(super) clock: Clock,
    pub(super) table: Shared<Table>,
    /// Tells the heartbeat task that something is due before it meant to wake.
    pub(super) wake: Arc<Notify>,
    pub(super) asleep_until: AtomicU64,
    pub(super) engine: &'static str,
    pub(super) session: Arc<dyn Session>,
    pub(super) reaper: Reaper,
    home: OnceLock<Weak<dyn Home>>,
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
            home: OnceLock::new(),
        });
        let _ = this.set(Arc::downgrade(&keeper));
        let beats = super::heartbeat::run(Arc::downgrade(&keeper), session, clock);
        drop(tokio::spawn(beats));
        Ok(keeper)
    }

    /// Says who is to look at grants that changed.
    pub(crate) fn set_home(&self, home: Weak<dyn Home>) {
        let _ = self.home.set(home);
    }

    pub(super) fn look(&self, grant: &Arc<Grant>) {
        if let Some(home) = self.home.get().and_then(Weak::upgrade) {
            home.look(grant);
        }
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Makes a held write claim a read claim.
    pub(crate) async fn downgrade(&self, grant: &Grant, mode: crate::claim::Mode) -> Result<()> {
        let mut claim = grant.claim.clone();
        claim.mode = mode;
        let sent = self.clock.now();
        match within(patience(&claim), self.session.claim(&claim)).await {
            Some(Ok(Standing::Held(held))) if grant.is(&held) => {
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
        self.reaper.progress.close();
        let mut table = self.table.lock();
        for entry in table.values_mut() {
            if let Phase::Waiting { tell, .. } = &mut entry.phase
                && let Some(waiter) = tell.take()
            {
                let why = "the client was shut down".to_owned();
                let _ = waiter.send(Outcome::Ended(Ended::Down(why)));
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

    pub(super) fn is_closing(&self) -> bool {
        self.reaper.progress.is_closing()
    }

    fn left(&self) -> usize {
        self.table.lock().len() + self.reaper.progress.open()
    }

    /// Whether the entry was still there.
    pub(super) fn take_out(&self, id: ClaimId) -> bool {
        let there = self.table.lock().remove(&id).is_some();
        self.reaper.progress.tell();
        there
    }

    /// Wakes the heartbeat task if it would sleep past this.
    pub(super) fn wake_by(&self, when: Micros) {
        let sooner = |until: &Micros| when < *until;
        // A look first: most claims are due after the first one.
        if sooner(&self.asleep_until.load(Ordering::SeqCst))
            && sooner(&self.asleep_until.fetch_min(when, Ordering::SeqCst))
        {
            self.wake.notify_one();
        }
    }
}

/// How long one call may take: an answer after the lease is worth nothing.
pub(super) fn patience(claim: &Claim) -> Duration {
    claim.lease.min(Duration::from_secs(60))
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The heartbeat task sees that the keeper is gone, and ends.
        self.wake.notify_one();
    }
}
