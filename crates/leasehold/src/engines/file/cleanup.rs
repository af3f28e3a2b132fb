//! Removing the files of names that no process uses, and what killed processes left behind.

use std::fs::{DirEntry, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use tokio::sync::Notify;

use super::dir::{io, open_file};
use super::error::Trouble;
use super::inspect::look;
use super::presence;
use super::session::FileSession;
use super::slots::enter;
use super::store::{self, Lock, Store, try_flock};
use super::transaction::World;
use crate::claim::SessionId;
use crate::clock::micros;
use crate::line::Line;
use crate::name::Name;

/// How long a name is idle before its file is removed: making one costs more than using it.
const IDLE: Duration = Duration::from_secs(1);

/// How many files of each kind a new session looks at: opening one must stay cheap.
const AT_MOST: usize = 16;

/// Tidies up a while after each time that a line was left idle.
pub(super) async fn tidy_in_turn(untidy: Arc<Notify>, session: Weak<FileSession>) {
    loop {
        untidy.notified().await;
        tokio::time::sleep(IDLE).await;
        if let Some(session) = session.upgrade() {
            session.tidy(IDLE);
        }
    }
}

impl FileSession {
    /// Some line may be idle now: looks again in a while.
    pub(super) fn leave_untidy(&self) {
        // A look first: most often it is known already.
        if !self.untidy.load(Ordering::Acquire) && !self.untidy.swap(true, Ordering::AcqRel) {
            self.tidy.notify_one();
        }
    }

    /// Removes the files of names that have been idle for a while, and forgets those lines.
    fn tidy(&self, idle: Duration) {
        self.untidy.store(false, Ordering::Release);
        let (now, idle) = (self.world.clock.now(), micros(idle));
        let over = |since: u64| since.saturating_add(idle) <= now;
        for (name, slot) in self.slots.all() {
            let Some(mut slot) = enter(&slot) else {
                self.leave_untidy();
                continue;
            };
            let Some(since) = slot.note.idle else {
                continue;
            };
            let removed = over(since) && remove(&self.world, &mut slot.store, &name, Line::is_idle);
            match removed {
                true => self.slots.forget(&name, &mut slot),
                false => self.leave_untidy(),
            }
        }
    }

    /// Removes every idle file at the end of the session, as far as that takes no time worth speaking of: another process
    /// may be at work on one, or a fence may be ahead of the clock.
    pub(super) async fn tidy_up(&self) {
        for _ in 0..20 {
            self.tidy(Duration::ZERO);
            if !self.untidy.load(Ordering::Acquire) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for FileSession {
    fn drop(&mut self) {
        // A program that ends without closing still leaves no idle file. Its claims end with its presence.
        self.tidy(Duration::ZERO);
    }
}

/// Removes a line's file if it is unused, once the clock has passed its last fence. False if that has to be tried again:
/// another process is at work on it, or the clock has not.
fn remove(
    world: &World,
    store: &mut Option<Store>,
    name: &Name,
    unused: impl FnOnce(&Line) -> bool,
) -> bool {
    let locked = match store::lock(store, &world.dir, name, false, || Ok(())) {
        Ok(Lock::Got(locked)) => locked,
        Ok(Lock::Busy) => return false,
        Ok(Lock::Absent) | Err(_) => return true,
    };
    // A session that uses it now tidies up later.
    if !unused(&locked.line) {
        return true;
    }
    locked.line.last_fence() < world.clock.wall() && locked.remove(&world.dir).unwrap_or(true)
}

/// Clears away a little of what killed processes left behind; every session that opens does.
pub(super) fn clear_leftovers(world: &World) {
    for entry in some(&world.dir.sessions) {
        let name = entry.file_name();
        let digits = name.to_str().map(|name| name.trim_end_matches(".sock"));
        let id = digits.and_then(|digits| u128::from_str_radix(digits, 16).ok());
        if let Some(id) = id.map(SessionId::from_u128)
            && presence::is_dead(&world.dir, id)
        {
            // Its socket may be all that is left of it.
            let _ = rustix::fs::unlink(world.dir.socket(id));
        }
    }
    for entry in some(&world.dir.lines) {
        let unused = |line: &Line| !in_use(world, line);
        if let Ok(Some((name, line))) = look(&entry.path(), &world.dir.boot)
            && unused(&line)
        {
            // Should that fail, another session will.
            let _ = remove(world, &mut None, &name, unused);
        }
    }
}

/// A few entries of a directory, other ones each time.
fn some(dir: &Path) -> Vec<DirEntry> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut entries: Vec<_> = entries.flatten().collect();
    if entries.len() > AT_MOST {
        let first = rand::random_range(0..entries.len());
        entries.rotate_left(first);
        entries.truncate(AT_MOST);
    }
    entries
}

fn in_use(world: &World, line: &Line) -> bool {
    let now = world.clock.now();
    let ended = |session| presence::is_dead(&world.dir, session);
    let mut places = line.places();
    places.any(|place| place.deadline > now && !ended(place.session))
}

/// The file with the largest fence of all names whose files were removed: the number and, against damage, the same with
/// every bit turned. A name that comes back starts above it, so its fences grow even if the wall clock was set back
/// meanwhile.
#[derive(Debug)]
pub(super) struct Floor(pub(super) PathBuf);

impl Floor {
    /// The floor; 0 while there is none.
    pub(super) fn get(&self) -> Result<u64, Trouble> {
        match open_file(&self.0, OFlags::RDONLY) {
            Ok(file) => Ok(read(&file)),
            Err(trouble) if trouble.is_missing() => Ok(0),
            Err(trouble) => Err(trouble),
        }
    }

    /// Makes it at least this. False if another process is at it: it has to be tried again.
    pub(super) fn raise(&self, to: u64) -> Result<bool, Trouble> {
        let file = open_file(&self.0, OFlags::RDWR | OFlags::CREATE)?;
        let got = try_flock(&file, FlockOperation::NonBlockingLockExclusive);
        if !got.map_err(|errno| Trouble::io("lock", &self.0, errno))? {
            return Ok(false);
        }
        if read(&file) < to {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&to.to_le_bytes());
            bytes[8..].copy_from_slice(&(!to).to_le_bytes());
            file.write_all_at(&bytes, 0)
                .map_err(|error| io("write", &self.0, &error))?;
        }
        Ok(true)
    }
}

/// A damaged file counts as 0: the wall clock is the floor as well.
fn read(file: &File) -> u64 {
    let mut bytes = [0; 16];
    if file.read_exact_at(&mut bytes, 0).is_err() {
        return 0;
    }
    let number = u128::from_le_bytes(bytes);
    let (floor, check) = (number as u64, (number >> 64) as u64);
    if floor == !check { floor } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Claim;
    use crate::engine::{Clock, Identity, Inbox, Mode, Release, Session};
    use std::sync::Arc;

    use super::super::transaction::World;

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
            session.slots.names(|_| true).len(),
            3,
            "not idle for long enough"
        );
        session.tidy(Duration::ZERO);
        assert_eq!(
            session.slots.names(|_| true),
            std::slice::from_ref(&held.name)
        );
    }

    #[tokio::test]
    async fn a_lock_held_for_long_looks_new_to_cleaners_of_old_files() {
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

    #[test]
    fn only_rises_and_damage_counts_as_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let floor = Floor(temp.path().join("floor"));
        assert_eq!(floor.get().unwrap(), 0);
        for (to, then) in [(7, 7), (9, 9), (8, 9), (u64::MAX, u64::MAX)] {
            assert!(floor.raise(to).unwrap());
            assert_eq!(floor.get().unwrap(), then);
        }
        for damage in [&b""[..], b"1234567", &[0; 16], &[255; 16]] {
            std::fs::write(&floor.0, damage).unwrap();
            assert_eq!(floor.get().unwrap(), 0);
            assert!(floor.raise(3).unwrap());
            assert_eq!(floor.get().unwrap(), 3);
        }
    }
}
