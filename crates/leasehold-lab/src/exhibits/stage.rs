//! Where a schedule is played: clients that note what they do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::engine::{Clock, Micros};

use crate::history::{Call, Log, NEVER, What};

/// How long a lock of an exhibit is asked for.
pub(super) const LEASE: Duration = Duration::from_millis(200);

/// A schedule's clients share one log.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    pub(super) log: Log,
    ops: Arc<AtomicU64>,
}

impl Stage {
    pub(super) fn new() -> Self {
        Self {
            log: Log::memory("lab", Clock::boot()),
            ops: Arc::new(AtomicU64::new(1)),
        }
    }

    /// Somebody asks for the lock.
    pub(super) fn asks(&self, who: &str) -> Asks {
        let op = self.ops.fetch_add(1, Ordering::Relaxed);
        let log = self.log.of(who);
        let lease = LEASE.as_micros() as Micros;
        log.note(
            op,
            What::Call(Call {
                name: "stock:42".into(),
                weight: 1,
                capacity: 1,
                waits: true,
                lease,
                owner: 0,
            }),
        );
        Asks { log, op }
    }

    pub(super) fn dies(&self, who: &str) {
        self.log.note(0, What::Crashed(who.to_owned()));
    }

    pub(super) fn effect(&self, by: &str, fence: u64, accepted: bool) {
        self.log.note(
            0,
            What::Effect {
                name: "stock:42".into(),
                by: by.to_owned(),
                fence,
                accepted,
            },
        );
    }
}

/// One request and what comes of it.
#[derive(Debug)]
pub(super) struct Asks {
    log: Log,
    op: u64,
}

impl Asks {
    /// It believes that it holds, for as long as it likes.
    pub(super) fn holds(&self, fence: u64) {
        self.log.note(
            self.op,
            What::Granted {
                fence,
                until: NEVER,
            },
        );
    }

    /// It believes that it holds, until its own deadline.
    pub(super) fn holds_for(&self, fence: u64, left: Duration) {
        let until = self.log.now() + left.as_micros() as Micros;
        self.log.note(self.op, What::Granted { fence, until });
    }

    /// It looked: its deadline is later now.
    pub(super) fn still_holds(&self, left: Duration) {
        let until = self.log.now() + left.as_micros() as Micros;
        self.log.note(self.op, What::Until(until));
    }

    pub(super) fn lost(&self) {
        self.log.note(self.op, What::Lost);
    }

    pub(super) fn gives_up(&self) {
        self.log.note(self.op, What::Cancelled);
    }

    pub(super) fn releases(&self) {
        self.log.note(self.op, What::Release);
    }

    pub(super) fn was_told(&self, held: bool) {
        self.log
            .note(self.op, What::Released { held, asked: false });
    }
}

/// Time passes: schedules are made of it.
#[expect(
    clippy::disallowed_methods,
    reason = "the schedule is that somebody is late"
)]
pub(super) fn rest(time: Duration) {
    std::thread::sleep(time);
}
