//! Removing the files of names that nobody uses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::lines::{Place, Slot, Tried};
use super::session::FileSession;
use crate::clock::{Micros, micros};
use crate::line::Moment;
use crate::name::Name;

/// How long a name is idle before its file is removed: making one costs more than using it.
pub(super) const IDLE: Duration = Duration::from_secs(1);

impl FileSession {
    /// Some line may be idle now: looks again in a while.
    pub(super) fn leave_untidy(&self) {
        if !self.untidy.swap(true, Ordering::AcqRel) {
            self.tidy.notify_one();
        }
    }

    /// Removes the files of names that have been idle for a while, and forgets those lines.
    pub(super) fn tidy(&self, idle: Duration) {
        self.untidy.store(false, Ordering::Release);
        let at = self.world.moment();
        let idle: Micros = micros(idle);
        let over = |slot: &Slot| {
            slot.idle
                .is_some_and(|since| since.saturating_add(idle) <= at.now)
        };
        for name in self.lines.names(|slot| slot.idle.is_some()) {
            let removed = {
                let slot = self.lines.slot(&name);
                let mut slot = slot.lock();
                over(&slot) && self.remove(&mut slot, &name, at)
            };
            if removed {
                self.lines.forget(&name, over);
            } else {
                self.leave_untidy();
            }
        }
    }

    /// Removes every idle file at the end of the session, as far as that takes no time worth speaking of: others may
    /// be at work on them, or a fence may be ahead of the clock.
    pub(super) async fn tidy_up(&self) {
        for _ in 0..20 {
            self.tidy(Duration::ZERO);
            if !self.untidy.load(Ordering::Acquire) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Removes an idle line's file, once the clock has passed its last fence. Whether nothing is left to do.
    fn remove(&self, slot: &mut Slot, name: &Name, at: Moment) -> bool {
        let place = Place::existing(&self.world.dir, name);
        let removed = self.lines.with(slot, &place, |mut locked| {
            let line = locked.line()?;
            let removable = line.is_idle() && line.last_fence() < at.floor;
            match removable {
                true => locked.remove(&line),
                // Somebody else uses it now, and will tidy up.
                false => Ok(!line.is_idle()),
            }
        });
        match removed {
            Ok(Tried::Done(done)) => done,
            Ok(Tried::Absent) => true,
            Ok(Tried::Busy) => false,
            Err(_) => true,
        }
    }
}

impl Drop for FileSession {
    fn drop(&mut self) {
        // A program that ends without closing still leaves no idle file. Its claims end with its presence.
        self.tidy(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;
    use crate::engine::{Clock, Identity, Inbox, Mode, Release, Session};
    use std::sync::Arc;

    use super::super::world::World;

    #[tokio::test]
    async fn forgets_the_lines_it_no_longer_uses() {
        let temp = tempfile::tempdir().unwrap();
        let world = Arc::new(World::open(temp.path(), Clock::boot()).unwrap());
        let session = FileSession::open(world, Identity::of_this_process(), Inbox::new(|_| {}));
        let session = session.unwrap();
        let claim = |name: &str| {
            let name = Name::new(name).unwrap();
            Claim::new(name, Mode::Mutex, Duration::from_secs(60))
        };
        let (held, released, never) = (claim("held"), claim("released"), claim("never"));
        let _ = session.claim(&held).await.unwrap();
        let _ = session.claim(&released).await.unwrap();
        let _ = session.release(&released, 1).await.unwrap();
        assert_eq!(session.release(&never, 1).await.unwrap(), Release::Gone);
        session.tidy(IDLE);
        assert_eq!(
            session.lines.names(|_| true).len(),
            3,
            "not idle for long enough"
        );
        session.tidy(Duration::ZERO);
        assert_eq!(session.lines.names(|_| true), [held.name]);
    }
}
