//! Gives back what was dropped: claims of cancelled futures, grants of dropped guards.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::timeout::within;
use crate::claim::Claim;
use crate::clock::{Clock, Micros, micros};
use crate::engine::Session;

/// One claim to give back.
pub(super) struct Job {
    pub(super) claim: Arc<Claim>,
    pub(super) used: u32,
    _open: Open<Arc<Progress>>,
}

/// Sending never blocks and works outside a runtime; a claim that cannot be sent any more ends with its lease.
pub(super) struct Reaper {
    jobs: mpsc::UnboundedSender<Job>,
    pub(super) progress: Arc<Progress>,
}

/// How much is still to be given back.
#[derive(Default)]
pub(super) struct Progress {
    open: AtomicUsize,
    closing: AtomicBool,
    pub(super) changed: Notify,
}

impl Progress {
    // All in one order with the end of an `Open`: either the shutdown sees that it has ended, or it is told.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// From now on a shutdown wants to know of every change.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Something is no longer held or to be given back.
    pub(super) fn tell(&self) {
        if self.is_closing() {
            self.changed.notify_waiters();
        }
    }
}

/// Something that is being given back: counted until it is dropped.
pub(super) struct Open<P: Deref<Target = Progress>>(P);

impl<P: Deref<Target = Progress>> Open<P> {
    pub(super) fn new(progress: P) -> Self {
        let _ = progress.open.fetch_add(1, Ordering::SeqCst);
        Self(progress)
    }
}

impl<P: Deref<Target = Progress>> Drop for Open<P> {
    fn drop(&mut self) {
        let _ = self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.tell();
    }
}

impl Reaper {
    /// Starts the task. When the last sender is gone it finishes what is left and closes the session.
    #[expect(clippy::disallowed_methods, reason = "the session starts tasks")]
    pub(super) fn start(session: Arc<dyn Session>, clock: Clock) -> Self {
        let (jobs, inbox) = mpsc::unbounded_channel();
        let progress = Arc::default();
        drop(tokio::spawn(run(session, clock, inbox)));
        Self { jobs, progress }
    }

    pub(super) fn release(&self, claim: Arc<Claim>, used: u32) {
        let _open = Open::new(self.progress.clone());
        // Without a runtime to run on, the lease ends it.
        let _ = self.jobs.send(Job { claim, used, _open });
    }
}

/// Each job is a task of its own, so a release that hangs keeps no other waiting; it ends with its claim's lease, so there
/// are never more than the claims of one lease.
async fn run(session: Arc<dyn Session>, clock: Clock, mut inbox: mpsc::UnboundedReceiver<Job>) {
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = under_way.join_next() => {}
            job = inbox.recv() => match job {
                None => break,
                Some(job) => {
                    let (session, clock) = (session.clone(), clock.clone());
                    let _ = under_way.spawn(async move { release(&*session, &clock, &job).await });
                }
            },
        }
    }
    while under_way.join_next().await.is_some() {}
    if let Err(error) = session.close().await {
        tracing::debug!(%error, "closing the session");
    }
}

/// Tries until it is done or the claim has ended by itself.
async fn release(session: &dyn Session, clock: &Clock, job: &Job) {
    let lease = micros(job.claim.lease);
    let end: Micros = clock.now().saturating_add(lease);
    let mut pause = Duration::from_millis(10);
    loop {
        let patience = Duration::from_micros(end.saturating_sub(clock.now()));
        match within(patience, session.release(&job.claim, job.used)).await {
            Some(Ok(_)) => return,
            Some(Err(error)) => tracing::debug!(%error, "giving back in the background"),
            None => {}
        }
        if clock.now() >= end {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
