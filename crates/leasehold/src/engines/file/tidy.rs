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
        // A look first: most often it is known already.
        if !self.untidy.load(Ordering::Acquire) && !self.untidy.swap(true, Ordering::AcqRel) {
            self.tidy.notify_one();
        }
    }

    /// Removes the files of names that have been idle for a while, and forgets those lines.
    pub(super) fn tidy(&self, idle: Duration) {
        self.untidy.store(false, Ordering::Release);
        let at = self.world.moment();
        let idle: Micros = micros(idle);
        let over = |slot: &Slot| {
            slot.note
                .idle
                .is_some_and(|since| since.saturating_add(idle) <= at.now)
        };
        for name in self.lines.names(|slot| slot.note.idle.is_some()) {
            let remove = |slot: &mut Slot| over(slot) && self.remove(slot, &name, at);
            if self.lines.known(&name, remove).unwrap_or(true) {
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
        let removed = self.lines.with(&mut slot.store, &place, |mut locked| {
            let line = locked.line()?;
            let idle = line.is_idle();
            match idle && line.last_fence() < at.floor {
                true => locked.remove(),
                // Somebody else uses it now, and will tidy up.
                false => Ok(!idle),
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

    fn claim(name: &str) -> Arc<Claim> {
        let name = Name::new(name).unwrap();
        Arc::new(Claim::new(name, Mode::Mutex, Duration::from_secs(7_200)))
    }

    fn session(dir: &std::path::Path, clock: Clock) -> Arc<FileSession> {
        let world = Arc::new(World::open(dir, clock).unwrap());
        FileSession::open(world, Identity::of_this_process(), Inbox::new(|_| {})).unwrap()
    }

    #[tokio::test]
    async fn forgets_the_lines_it_no_longer_uses() {
        let temp = tempfile::tempdir().unwrap();
        let session = session(temp.path(), Clock::boot());
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
        assert_eq!(
            session.lines.names(|_| true),
            std::slice::from_ref(&held.name)
        );
    }

    #[tokio::test]
    async fn what_is_held_for_long_looks_new_to_those_who_clear_old_files() {
        let temp = tempfile::tempdir().unwrap();
        let clock = Clock::simulated();
        let session = session(temp.path(), clock.clone());
        let held = claim("held");
        let _ = session.claim(&held).await.unwrap();
        let folders = ["lines", "sessions"].map(|folder| temp.path().join(folder));
        let entries = folders.iter().flat_map(|folder| folder.read_dir().unwrap());
        let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        assert_eq!(files.len(), 3, "a line, a session, a socket: {files:?}");
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        let times = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec::default(),
            last_modification: rustix::fs::Timespec::default(),
        };
        for path in &files {
            let follow = rustix::fs::AtFlags::empty();
            rustix::fs::utimensat(rustix::fs::CWD, path, &times, follow).unwrap();
        }
        clock.skip(Duration::from_secs(3_601));
        session.heartbeat(&[held], &|_, _| {}).await.unwrap();
        for path in &files {
            let modified = std::fs::metadata(path).unwrap().modified().unwrap();
            assert!(modified > long_ago, "{path:?}");
        }
    }
}
