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
use super::page::{PAGE, Page};
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
    /// What was read, unless the file is mapped; what is to be written. Kept for the next time.
    bytes: Vec<u8>,
    next: Vec<u8>,
    /// The line as this store last saw it, and the record that says so.
    line: Line,
    spot: Option<Spot>,
    page: Option<Page>,
    /// Whether the file is all in the page now.
    mapped: bool,
    uses: u32,
}

/// What came of trying to lock a file.
pub(super) enum Lock<'a> {
    Got(Locked<'a>),
    /// Somebody else is at work on the line.
    Busy,
    /// The file was removed since it was opened.
    Removed,
}

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
            line: Line::default(),
            spot: None,
            page: None,
            mapped: false,
            uses: 0,
        }))
    }

    /// Locks the file against everybody else, without sleeping. A file that was removed since is noticed.
    pub(super) fn lock(&mut self) -> Result<Lock<'_>, Trouble> {
        for _ in 0..TRIES {
            match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return self.locked(),
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::yield_now(),
                Err(errno) => return Err(Trouble::io("lock", &self.path, errno)),
            }
        }
        Ok(Lock::Busy)
    }

    fn locked(&mut self) -> Result<Lock<'_>, Trouble> {
        let locked = Locked {
            store: self,
            from: None,
        };
        let store = &mut *locked.store;
        let found = rustix::fs::fstat(&store.file);
        let found = found.map_err(|errno| Trouble::io("look at", &store.path, errno))?;
        if found.st_nlink == 0 {
            return Ok(Lock::Removed);
        }
        let len = usize::try_from(found.st_size).unwrap_or(usize::MAX);
        store.map(len);
        if !store.mapped {
            read(&store.file, &store.path, &mut store.bytes)?;
        }
        Ok(Lock::Got(locked))
    }

    /// Maps the file if it is small and used more than once; after a refusal, less and less often.
    fn map(&mut self, len: usize) {
        self.uses = self.uses.saturating_add(1);
        self.mapped = len == PAGE && self.page.is_some();
        let worth_it = self.uses > 1 && self.uses.is_power_of_two();
        if self.page.is_none() && worth_it && (1..=PAGE).contains(&len) {
            self.page = Page::of(&self.file);
            self.mapped = self.page.is_some();
        }
    }

    /// The file as it is.
    fn bytes(&self) -> &[u8] {
        match &self.page {
            Some(page) if self.mapped => page,
            _ => &self.bytes,
        }
    }

    /// Puts the next record where it belongs.
    fn put(&mut self, at: usize) -> Result<(), Errno> {
        let len = self.next.len();
        if let Some(page) = &mut self.page
            && self.mapped
            && let Some(place) = page.get_mut(at..at + len)
        {
            place.copy_from_slice(&self.next);
            return Ok(());
        }
        match rustix::io::pwrite(&self.file, &self.next, at as u64) {
            Ok(written) if written == len => Ok(()),
            short => Err(short.err().unwrap_or(Errno::NOSPC)),
        }
    }
}

/// A line's file while nobody else may touch it.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    store: &'a mut Store,
    /// The record that holds the line as it was found.
    from: Option<Spot>,
}

impl Locked<'_> {
    /// The line as it is, to be changed and then [written](Self::write).
    pub(super) fn line(&mut self) -> Result<&mut Line, Trouble> {
        let store = &mut *self.store;
        // Until the change is written the record no longer says what the line is.
        self.from = store.spot.take();
        // Every record has a larger number than the one before: with the same one nothing was written since.
        if self.from.is_some_and(|spot| spot.is_newest(store.bytes())) {
            return Ok(&mut store.line);
        }
        let found = record::current(store.bytes()).map_err(|fault| fault.of(store.path.clone()))?;
        let (from, line) = match found {
            // The name is new, or comes back.
            None => (None, Line::new(store.floor.get()?)),
            Some(record) if record.name == store.name.as_str() => {
                (Some(record.spot), record.line(&store.boot))
            }
            Some(record) => {
                return Err(Fault::OtherName(record.name.to_owned()).of(store.path.clone()));
            }
        };
        (self.from, store.line) = (from, line);
        Ok(&mut store.line)
    }

    /// The line as it was written.
    pub(super) fn written(&self) -> &Line {
        &self.store.line
    }

    /// Makes the line as it is now the file's state; the one before it stands until the last byte is written.
    pub(super) fn write(&mut self) -> Result<(), Trouble> {
        let (store, from) = (&mut *self.store, self.from);
        let sequence = from.map_or(1, |spot| spot.sequence.saturating_add(1));
        let (boot, name) = (&store.boot, &store.name);
        record::encode(&mut store.next, sequence, boot, name, &store.line);
        if let Some(spot) = from
            && record::same(&store.next, &store.bytes()[spot.at..spot.at + spot.len])
        {
            store.spot = from;
            return Ok(());
        }
        let len = store.next.len();
        let at = from.map_or(0, |spot| spot.next(len));
        if let Err(errno) = store.put(at) {
            // A half of a first record would look like damage.
            if from.is_none() {
                let _ = rustix::fs::ftruncate(&store.file, 0);
            }
            return Err(Trouble::io("write", &store.path, errno));
        }
        store.spot = Some(Spot { at, len, sequence });
        if at == 0 && !store.mapped && store.bytes.len() > LARGE && len <= PAGE {
            let _ = rustix::fs::ftruncate(&store.file, PAGE as u64);
        }
        Ok(())
    }

    /// Removes the file of an idle line, unless that has to wait: says whether. Whoever has it open finds it empty
    /// once it gets the lock, and looks.
    pub(super) fn remove(self) -> Result<bool, Trouble> {
        let store = &*self.store;
        if !store.floor.raise(store.line.last_fence())? {
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
        let _ = rustix::fs::flock(&self.store.file, FlockOperation::Unlock);
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
        match store.lock().unwrap() {
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
        assert!(matches!(other.lock().unwrap(), Lock::Busy));
        join(locked.line().unwrap(), 1);
        locked.write().unwrap();
        drop(locked);
        assert_eq!(got(&mut other).line().unwrap(), &store.line);
    }

    #[test]
    fn a_write_that_fails_says_so_and_leaves_the_state_before() {
        let (_temp, _dir, mut store) = store();
        let mut locked = got(&mut store);
        join(locked.line().unwrap(), 1);
        locked.write().unwrap();
        drop(locked);
        let (before, path) = (store.line.clone(), store.path.clone());
        let writable = std::mem::replace(&mut store.file, File::open(&path).unwrap());
        let mut locked = got(&mut store);
        join(locked.line().unwrap(), 1);
        let error = locked.write().unwrap_err().at(Step::Claim);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error.to_string().contains(path.to_str().unwrap()),
            "{error}"
        );
        drop(locked);
        store.file = writable;
        assert_eq!(got(&mut store).line().unwrap(), &before);
    }

    #[test]
    fn whoever_has_a_removed_file_open_notices() {
        let (_temp, dir, mut store) = store();
        let mut other = Store::open(&dir, &name(), false).unwrap().unwrap();
        let mut locked = got(&mut store);
        join(locked.line().unwrap(), 1);
        locked.write().unwrap();
        assert!(locked.remove().unwrap());
        assert!(matches!(other.lock().unwrap(), Lock::Removed));
        assert!(Store::open(&dir, &name(), false).unwrap().is_none());
    }

    #[test]
    fn a_long_line_fits_and_a_short_one_gives_the_room_back() {
        let (_temp, dir, mut store) = store();
        let mut other = Store::open(&dir, &name(), false).unwrap().unwrap();
        let mut locked = got(&mut store);
        join(locked.line().unwrap(), 2_000);
        locked.write().unwrap();
        drop(locked);
        for _ in 0..2 {
            let mut locked = got(&mut store);
            let line = locked.line().unwrap();
            assert_eq!(got_by(&mut other), None, "one at a time");
            *line = Line::new(line.last_fence() + 1);
            locked.write().unwrap();
            drop(locked);
            assert_eq!(got_by(&mut other).as_ref(), Some(&store.line));
        }
        assert!(store.file.metadata().unwrap().len() <= PAGE as u64);
    }

    /// What a store finds, if it gets the lock.
    fn got_by(store: &mut Store) -> Option<Line> {
        match store.lock().unwrap() {
            Lock::Got(mut locked) => Some(locked.line().unwrap().clone()),
            _ => None,
        }
    }

    #[test]
    fn a_mapped_store_and_one_that_is_not_see_the_same() {
        let (_temp, dir, mut store) = store();
        for round in 0..10 {
            // Opened anew, it reads; used again and again, it is mapped. In between the line outgrows the page.
            let mut new = Store::open(&dir, &name(), false).unwrap().unwrap();
            for writer in [&mut new, &mut store] {
                let mut locked = got(writer);
                let line = locked.line().unwrap();
                match round {
                    5 => join(line, 100),
                    7 => *line = Line::new(line.last_fence()),
                    _ => join(line, 1),
                }
                locked.write().unwrap();
            }
            assert_eq!(got_by(&mut new).as_ref(), Some(&store.line), "{round}");
        }
        assert!(
            store.page.is_some(),
            "the temporary directory can be mapped"
        );
    }

    #[test]
    fn a_mapped_file_that_was_cut_is_no_end_of_the_process() {
        let (_temp, _dir, mut store) = store();
        for _ in 0..3 {
            let mut locked = got(&mut store);
            join(locked.line().unwrap(), 1);
            locked.write().unwrap();
        }
        assert!(store.mapped, "the temporary directory can be mapped");
        store.file.set_len(0).unwrap();
        assert!(got(&mut store).line().unwrap().is_idle());
        store.file.set_len(100).unwrap();
        assert!(got(&mut store).line().is_err());
    }
}
