//! One line's file: open, lock, read, write, remove.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::dir::Dir;
use super::error::{Fault, Trouble};
use super::floor::Floor;
use super::record::{self, BootId, Spot};
use crate::line::Line;
use crate::name::Name;

/// A line's open file.
#[derive(Debug)]
pub(super) struct Store {
    file: File,
    path: PathBuf,
    name: Name,
    boot: BootId,
    floor: Arc<Floor>,
    /// What was read; what is to be written. Kept for the next time.
    bytes: Vec<u8>,
    next: Vec<u8>,
    spot: Option<Spot>,
}

/// What came of trying to lock a file.
pub(super) enum Lock<'a> {
    Got(Locked<'a>),
    /// Somebody else is at work on the line.
    Busy,
    /// The file was removed since it was opened.
    Removed,
}

/// The first two records fit here.
const PAGE: usize = 4096;

/// Files above this are cut once their state is small again.
const LARGE: usize = 16 * PAGE;

/// Work on a line takes microseconds: tried this often before anybody sleeps over it.
const TRIES: usize = 24;

impl Store {
    /// Opens a line's file; none if there is none and it is not to be made.
    pub(super) fn open(dir: &Dir, name: &Name, make: bool) -> Result<Option<Self>, Trouble> {
        let path = dir.line(name);
        let make = if make {
            OFlags::CREATE
        } else {
            OFlags::empty()
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOATIME | make;
        let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) if make.is_empty() => return Ok(None),
            Err(errno) => return Err(Trouble::io("open", &path, errno)),
        };
        Ok(Some(Self {
            file,
            path,
            name: name.clone(),
            boot: dir.boot,
            floor: dir.floor.clone(),
            bytes: Vec::new(),
            next: Vec::new(),
            spot: None,
        }))
    }

    /// Locks the file against everybody else, without sleeping. A file that others removed by hand is noticed if
    /// that is asked for; one that was removed by [`Locked::remove`] always.
    pub(super) fn lock(&mut self, notice: bool) -> Result<Lock<'_>, Trouble> {
        for _ in 0..TRIES {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return self.locked(notice),
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::yield_now(),
                Err(errno) => return Err(Trouble::io("lock", &self.path, errno)),
            }
        }
        Ok(Lock::Busy)
    }

    fn locked(&mut self, notice: bool) -> Result<Lock<'_>, Trouble> {
        let locked = Locked(self);
        let store = &mut *locked.0;
        read(&store.file, &store.path, &mut store.bytes)?;
        // A removed file is empty, and so is a new one.
        if notice || store.bytes.is_empty() {
            let found = rustix::fs::fstat(&store.file);
            let found = found.map_err(|errno| Trouble::io("look at", &store.path, errno))?;
            if found.st_nlink == 0 {
                return Ok(Lock::Removed);
            }
        }
        Ok(Lock::Got(locked))
    }
}

/// A line's file while nobody else may touch it.
#[derive(Debug)]
pub(super) struct Locked<'a>(&'a mut Store);

impl Locked<'_> {
    /// The line as it is.
    pub(super) fn line(&mut self) -> Result<Line, Trouble> {
        let store = &mut *self.0;
        let found = record::current(&store.bytes).map_err(|fault| fault.of(store.path.clone()))?;
        store.spot = found.as_ref().map(|record| record.spot);
        match found {
            // The name is new, or comes back.
            None => Ok(Line::new(store.floor.get()?)),
            Some(record) if record.name == store.name.as_str() => Ok(record.line(&store.boot)),
            Some(record) => Err(Fault::OtherName(record.name.to_owned()).of(store.path.clone())),
        }
    }

    /// Makes this the line's state; the one before it stands until the last byte is written.
    pub(super) fn write(&mut self, line: &Line) -> Result<(), Trouble> {
        let store = &mut *self.0;
        let sequence = store.spot.map_or(1, |spot| spot.sequence.saturating_add(1));
        record::encode(&mut store.next, sequence, &store.boot, &store.name, line);
        if let Some(spot) = store.spot
            && record::same(&store.next, &store.bytes[spot.at..spot.at + spot.len])
        {
            return Ok(());
        }
        let len = store.next.len();
        let at = store.spot.map_or(0, |spot| spot.next(len));
        match rustix::io::pwrite(&store.file, &store.next, at as u64) {
            Ok(written) if written == len => {}
            short => {
                // A half of a first record would look like damage.
                if store.spot.is_none() {
                    let _ = rustix::fs::ftruncate(&store.file, 0);
                }
                let errno = short.err().unwrap_or(Errno::NOSPC);
                return Err(Trouble::io("write", &store.path, errno));
            }
        }
        if at == 0 && store.bytes.len() > LARGE && len <= PAGE {
            let _ = rustix::fs::ftruncate(&store.file, PAGE as u64);
        }
        Ok(())
    }

    /// Removes the file of an idle line, unless that has to wait: says whether. Whoever has it open finds it empty
    /// once it gets the lock, and looks.
    pub(super) fn remove(self, line: &Line) -> Result<bool, Trouble> {
        let store = &*self.0;
        if !store.floor.raise(line.last_fence())? {
            return Ok(false);
        }
        let removed = rustix::fs::unlink(&store.path);
        let removed = removed.and_then(|()| rustix::fs::ftruncate(&store.file, 0));
        removed.map_err(|errno| Trouble::io("remove", &store.path, errno))?;
        Ok(true)
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0.file, FlockOperation::Unlock);
    }
}

/// Reads a whole file into a buffer that is kept. One call for a small one.
fn read(file: impl AsFd, path: &Path, into: &mut Vec<u8>) -> Result<(), Trouble> {
    into.resize(PAGE, 0);
    let mut done = 0;
    loop {
        match rustix::io::pread(&file, &mut into[done..], done as u64) {
            Ok(read) if done + read < into.len() => {
                into.truncate(done + read);
                return Ok(());
            }
            Ok(read) => {
                done += read;
                into.resize(done * 2, 0);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Trouble::io("read", path, errno)),
        }
    }
}

/// Tries a lock as often as is worth it without sleeping.
pub(super) fn try_flock(file: &File, how: FlockOperation) -> bool {
    (0..TRIES).any(|_| {
        let got = rustix::fs::flock(file, how).is_ok();
        if !got {
            std::thread::yield_now();
        }
        got
    })
}

/// The name and the line in a file, for somebody who only looks. None if it is empty or was removed meanwhile.
pub(super) fn look(path: &Path, boot: &BootId) -> Result<Option<(Name, Line)>, Trouble> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(super::dir::io("open", path, &error)),
    };
    // Should it stay busy, the read goes without: records have checksums, and this only looks.
    let _ = try_flock(&file, FlockOperation::NonBlockingLockShared);
    let mut bytes = Vec::new();
    read(&file, path, &mut bytes)?;
    let record = record::current(&bytes).map_err(|fault| fault.of(path.to_owned()))?;
    let Some(record) = record else {
        return Ok(None);
    };
    let name = Name::new(record.name).map_err(|_| Fault::Torn.of(path.to_owned()))?;
    Ok(Some((name, record.line(boot))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::{Claim, Mode as ClaimMode, SessionId};
    use crate::error::{ErrorKind, Step};
    use crate::line::Moment;
    use std::time::Duration;

    const AT: Moment = Moment { now: 1, floor: 1 };

    fn store() -> (tempfile::TempDir, Dir, Store) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let store = Store::open(&dir, &name(), true).unwrap().unwrap();
        (temp, dir, store)
    }

    fn name() -> Name {
        Name::new("x").unwrap()
    }

    fn got(store: &mut Store) -> Locked<'_> {
        match store.lock(true).unwrap() {
            Lock::Got(locked) => locked,
            Lock::Busy => panic!("busy"),
            Lock::Removed => panic!("removed"),
        }
    }

    fn join(line: &mut Line, claims: usize) {
        for _ in 0..claims {
            let claim = Claim::new(name(), ClaimMode::Mutex, Duration::from_secs(1));
            let _ = line.claim(&claim.ask(SessionId::random()), AT);
        }
    }

    #[test]
    fn one_at_a_time_and_the_next_sees_what_was_written() {
        let (_temp, dir, mut store) = store();
        let mut other = Store::open(&dir, &name(), false).unwrap().unwrap();
        let mut locked = got(&mut store);
        assert!(matches!(other.lock(true).unwrap(), Lock::Busy));
        let mut line = locked.line().unwrap();
        join(&mut line, 1);
        locked.write(&line).unwrap();
        drop(locked);
        assert_eq!(got(&mut other).line().unwrap(), line);
    }

    #[test]
    fn a_write_that_fails_says_so_and_leaves_the_state_before() {
        let (_temp, _dir, mut store) = store();
        let mut locked = got(&mut store);
        let mut line = locked.line().unwrap();
        join(&mut line, 1);
        locked.write(&line).unwrap();
        drop(locked);
        let (before, path) = (line.clone(), store.path.clone());
        let writable = std::mem::replace(&mut store.file, File::open(&path).unwrap());
        let mut locked = got(&mut store);
        let mut line = locked.line().unwrap();
        join(&mut line, 1);
        let error = locked.write(&line).unwrap_err().at(Step::Claim);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        drop(locked);
        store.file = writable;
        assert_eq!(got(&mut store).line().unwrap(), before);
    }

    #[test]
    fn whoever_has_a_removed_file_open_notices() {
        let (_temp, dir, mut store) = store();
        let mut other = Store::open(&dir, &name(), false).unwrap().unwrap();
        let mut locked = got(&mut store);
        let mut line = locked.line().unwrap();
        join(&mut line, 1);
        locked.write(&line).unwrap();
        assert!(locked.remove(&line).unwrap());
        assert!(matches!(other.lock(false).unwrap(), Lock::Removed));
        assert!(Store::open(&dir, &name(), false).unwrap().is_none());
    }

    #[test]
    fn a_long_line_fits_and_a_short_one_gives_the_room_back() {
        let (_temp, _dir, mut store) = store();
        let (mut line, mut locked) = (Line::default(), got(&mut store));
        let _ = locked.line().unwrap();
        join(&mut line, 2_000);
        locked.write(&line).unwrap();
        drop(locked);
        for _ in 0..2 {
            let mut locked = got(&mut store);
            assert_eq!(locked.line().unwrap(), line);
            line = Line::new(line.last_fence() + 1);
            locked.write(&line).unwrap();
        }
        assert_eq!(got(&mut store).line().unwrap(), line);
        assert!(store.file.metadata().unwrap().len() <= PAGE as u64);
    }
}
