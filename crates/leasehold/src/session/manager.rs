//! Keeps the claims of one client: the table, the two tasks, and closing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::grant::{Grant, GrantObserver};
use super::heartbeat::{self, Renewals};
use super::inbox::Inbox;
use super::reaper::Reaper;
use super::table::{News, Parked, Phase, Table, Told};
use super::timeout::within;
use crate::claim::{Claim, ClaimId};
use crate::clock::{Clock, Micros, micros};
use crate::engine::{Ended, Engine, Identity, Session, Standing};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::sync::Shared;

/// Keeps the claims of one client alive.
pub(crate) struct Manager {
    pub(super) clock: Clock,
    pub(super) table: Shared<Table>,
    /// Tells the heartbeat task that something is due before it meant to wake.
    pub(super) wake: Arc<Notify>,
    pub(super) asleep_until: AtomicU64,
    pub(super) engine: &'static str,
    pub(super) session: Arc<dyn Session>,
    pub(super) reaper: Reaper,
    pub(super) observer: Arc<dyn GrantObserver>,
}

impl Manager {
    /// Opens a session and starts the two tasks.
    #[expect(clippy::disallowed_methods, reason = "the session starts tasks")]
    pub(crate) async fn open(
        engine: &dyn Engine,
        who: &Identity,
        clock: &Clock,
        observer: Arc<dyn GrantObserver>,
    ) -> Result<Arc<Self>> {
        let this = Arc::new(OnceLock::<Weak<Self>>::new());
        let route = this.clone();
        let inbox = Inbox::new(move |event| {
            if let Some(manager) = route.get().and_then(Weak::upgrade) {
                manager.take(event);
            }
        });
        let session = engine.open(who, inbox).await?;
        let manager = Arc::new(Self {
            clock: clock.clone(),
            table: Shared::default(),
            wake: Arc::default(),
            asleep_until: AtomicU64::new(Micros::MAX),
            engine: engine.kind(),
            session: session.clone(),
            reaper: Reaper::start(session.clone(), clock.clone()),
            observer,
        });
        let _ = this.set(Arc::downgrade(&manager));
        let beats = heartbeat::run(Renewals(Arc::downgrade(&manager)), session, clock.clone());
        drop(tokio::spawn(beats));
        Ok(manager)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Makes a held write claim a read claim. If the engine has it no longer, that is told as a loss.
    pub(crate) async fn downgrade(&self, grant: &Grant, mode: crate::claim::Mode) -> Result<()> {
        let mut claim = grant.claim.clone();
        claim.mode = mode;
        let sent = self.clock.now();
        match within(patience(&claim), self.session.claim(&claim)).await {
            Some(Ok(Standing::Held(held))) if grant.is(&held) => {
                // A fixed lease counts from the grant. An event may have come meanwhile: it stands until a heartbeat
                // says otherwise.
                if let Some(entry) = self.table.lock().get_mut(&claim.id)
                    && entry.renews()
                {
                    entry.heard(sent, true);
                }
                if held.wanted {
                    let _ = grant.set_wanted(true);
                }
                Ok(())
            }
            Some(Ok(_)) => {
                // The call itself may have joined the line anew.
                self.reap(grant);
                let gone = News::Ended(Ended::Forgotten);
                self.settle(self.table.lock(), claim.id, gone);
                grant.lose(Ended::Forgotten);
                let what = "the write lock was lost before it could become a read lock";
                Err(Error::new(ErrorKind::Lost, Step::Hold, what).of(&claim.name))
            }
            Some(Err(error)) => Err(error.of(&claim.name)),
            None => Err(self.late(&claim)),
        }
    }

    /// Whether the engine may still have this grant.
    pub(crate) fn has(&self, grant: &Grant) -> bool {
        self.table.lock().contains_key(&grant.claim.id)
    }

    /// Keeps a grant for a while, without a user or beyond its own end; the observer hears when the time is over.
    pub(crate) fn park(&self, grant: &Grant, kept: Option<Parked>) {
        if let Some(entry) = self.table.lock().get_mut(&grant.claim.id)
            && let Phase::Held { parked, .. } = &mut entry.phase
        {
            *parked = kept;
        }
        if let Some(kept) = kept {
            self.wake_by(kept.until);
        }
    }

    /// Refuses new claims from now on. Waiting tasks are told, and holders are asked to finish.
    pub(crate) fn close(&self) {
        self.reaper.progress.close();
        let mut held = Vec::new();
        for entry in self.table.lock().values_mut() {
            match &mut entry.phase {
                Phase::Asking { .. } => {}
                Phase::Waiting { tell, .. } => {
                    if let Some(waiter) = tell.take() {
                        let why = "the client was shut down".to_owned();
                        let _ = waiter.send(Told::Ended(Ended::Down(why)));
                    }
                }
                Phase::Held { grant, .. } => held.push(grant.clone()),
            }
        }
        for grant in held {
            grant.asked().cancel();
        }
    }

    /// Waits until nothing is held or to be given back, or the time is over; then closes the session. Says how
    /// many claims were left to their leases.
    pub(crate) async fn drain(&self, patience: Duration) -> Result<usize> {
        let end = self.clock.now().saturating_add(micros(patience));
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
        let drained = within(patience, empty).await;
        let left = if drained.is_some() { 0 } else { self.left() };
        self.all_lost("the client was shut down");
        let rest = Duration::from_micros(end.saturating_sub(self.clock.now()));
        match within(rest.max(CLOSING), self.session.close()).await {
            Some(closed) => closed.map(|()| left),
            None => {
                let what = "the engine did not hear in time that the session ends; what the session has ends with its lease";
                let error = Error::new(ErrorKind::TimedOut, Step::Close, what);
                Err(error.on(self.engine).perhaps())
            }
        }
    }

    pub(crate) fn is_closing(&self) -> bool {
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

/// A shutdown may take so much longer than its patience, to tell the engine that the session ends.
const CLOSING: Duration = Duration::from_millis(500);

/// How long one call may take: an answer after the lease is worth nothing.
pub(super) fn patience(claim: &Claim) -> Duration {
    claim.lease.min(Duration::from_secs(60))
}

impl Drop for Manager {
    fn drop(&mut self) {
        // The heartbeat task sees that the manager is gone, and ends.
        self.wake.notify_one();
    }
}
