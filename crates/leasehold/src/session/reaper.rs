//! Gives back what was dropped: claims of cancelled futures, grants of dropped guards.

use std::collections::VecDeque;
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
    claim: Arc<Claim>,
    used: u32,
    /// When the claim ends by itself.
    end: Micros,
    _open: Open<Arc<Progress>>,
}

/// Sending never blocks and works outside a runtime; a claim that cannot be sent any more ends with its lease.
pub(super) struct Reaper {
    jobs: mpsc::UnboundedSender<Job>,
    clock: Clock,
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
        drop(tokio::spawn(run(session, clock.clone(), inbox)));
        Self {
            jobs,
            clock,
            progress,
        }
    }

    pub(super) fn release(&self, claim: Arc<Claim>, used: u32) {
        let job = Job {
            used,
            end: self.clock.now().saturating_add(micros(claim.lease)),
            claim,
            _open: Open::new(self.progress.clone()),
        };
        // Without a runtime to run on, the lease ends it.
        let _ = self.jobs.send(job);
    }
}

/// How many releases that failed are tried again after a pause. One that succeeds starts the next at once.
const AGAIN: usize = 100;

/// The pause after a failure; it doubles up to the longest while none succeeds.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long one try may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives back everything it is sent, and closes the session after the last.
async fn run(session: Arc<dyn Session>, clock: Clock, mut inbox: mpsc::UnboundedReceiver<Job>) {
    let mut releases = Releases::new(session, clock);
    let mut open = true;
    while open || releases.are_left() {
        tokio::select! {
            Some(tried) = releases.under_way.join_next() => releases.tried(tried.ok().flatten()),
            job = inbox.recv(), if open => match job {
                Some(job) => {
                    if !releases.are_left() {
                        releases.pause = PAUSE;
                    }
                    releases.begin(job);
                }
                None => open = false,
            },
            () = releases.clock.sleep_until(releases.again), if !releases.failed.is_empty() => {
                releases.try_again();
            }
        }
    }
    if let Err(error) = releases.session.close().await {
        tracing::debug!(%error, "closing the session");
    }
}

/// The first try of each job is a call of its own, so a release that hangs keeps no other waiting. Those that failed wait in a
/// queue, at most for the lease of their claim.
struct Releases {
    session: Arc<dyn Session>,
    clock: Clock,
    under_way: JoinSet<Option<Job>>,
    failed: VecDeque<Job>,
    /// When the next of them are tried again.
    again: Micros,
    pause: Duration,
}

impl Releases {
    fn new(session: Arc<dyn Session>, clock: Clock) -> Self {
        Self {
            session,
            clock,
            under_way: JoinSet::new(),
            failed: VecDeque::new(),
            again: 0,
            pause: PAUSE,
        }
    }

    fn are_left(&self) -> bool {
        !self.under_way.is_empty() || !self.failed.is_empty()
    }

    fn begin(&mut self, job: Job) {
        let patience =
            Duration::from_micros(job.end.saturating_sub(self.clock.now())).min(PATIENCE);
        let session = self.session.clone();
        let _ = self.under_way.spawn(async move {
            match within(patience, session.release(&job.claim, job.used)).await {
                Some(Ok(_)) => return None,
                Some(Err(error)) => tracing::debug!(%error, "giving back in the background"),
                None => {}
            }
            Some(job)
        });
    }

    /// A try is over; this job is left of it.
    fn tried(&mut self, failed: Option<Job>) {
        match failed {
            None => {
                self.pause = PAUSE;
                if let Some(next) = self.failed.pop_front() {
                    self.begin(next);
                }
            }
            Some(job) => {
                if self.failed.is_empty() {
                    self.again = self.clock.now() + micros(self.pause);
                }
                self.failed.push_back(job);
            }
        }
    }

    fn try_again(&mut self) {
        let now = self.clock.now();
        self.failed.retain(|job| job.end > now);
        for job in self
            .failed
            .drain(..AGAIN.min(self.failed.len()))
            .collect::<Vec<_>>()
        {
            self.begin(job);
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.again = self.clock.now() + micros(self.pause);
    }
}
