//! One line's file: opened, locked, read, written, removed.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::dir::{Dir, open_file};
use super::error::{Fault, Trouble};
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
    /// A buffer for reading and writing, kept for the next time.
    bytes: Vec<u8>,
    next: Vec<u8>,
}

/// The outcome of trying to lock a line's file.
pub(super) enum Lock<'a> {
    Got(Locked<'a>),
    /// Another process, or another session of this one, is at work on the line.
    Busy,
    /// There is no such line.
    Absent,
}

/// A line, and its file while no other process may touch it.
pub(super) struct Locked<'a> {
    store: &'a mut Store,
    /// The line as it was read, to be changed and then [written](Self::write).
    pub(super) line: Line,
    /// The record it was read from.
    from: Option<Spot>,
}

/// Work on a line takes microseconds: tried this often before the caller sleeps over it.
const TRIES: usize = 24;

/// How often a file that vanishes while it is opened is tried again.
const REOPENED: usize = 100;

/// A small line's two records fit here.
const PAGE: usize = 4096;

/// Files above this are cut once their state is small again.
const LARGE: usize = 16 * PAGE;

/// Locks a line's file, without sleeping, and reads it. The file is opened if it is not, made if a claim `joins`, and
/// opened again if it was removed since. `opened` looks around whenever that had to be done.
pub(super) fn lock<'a>(
    store: &'a mut Option<Store>,
    dir: &Dir,
    name: &Name,
    joins: bool,
    opened: impl Fn() -> Result<(), Trouble>,
) -> Result<Lock<'a>, Trouble> {
    for _ in 0..REOPENED {
        if store.is_none() {
            *store = Store::open(dir, name, joins)?;
            opened()?;
        }
        let Some(open) = store else {
            return Ok(Lock::Absent);
        };
        let got = try_flock(&open.file, FlockOperation::NonBlockingLockExclusive);
        if !got.map_err(|errno| Trouble::io("lock", &open.path, errno))? {
            return Ok(Lock::Busy);
        }
        if open.is_removed() {
            *store = None;
            continue;
        }
        break;
    }
    match store {
        Some(store) => Locked::read(store, dir).map(Lock::Got),
        None => Ok(Lock::Busy),
    }
}

impl Store {
    /// Opens a line's file; none if there is none and it is not to be made.
    fn open(dir: &Dir, name: &Name, make: bool) -> Result<Option<Self>, Trouble> {
        let path = dir.line(name);
        let how = match make {
            true => OFlags::RDWR | OFlags::CREATE,
            false => OFlags::RDWR,
        };
        let file = match open_file(&path, how) {
            Ok(file) => file,
            Err(trouble) if trouble.is_missing() && !make => return Ok(None),
            Err(trouble) => return Err(trouble),
        };
        Ok(Some(Self {
            file,
            path,
            name: name.clone(),
            boot: dir.boot,
            bytes: Vec::new(),
            next: Vec::new(),
        }))
    }

    /// In doubt it is: then it is opened anew, and that tells. Asks for nothing else: on Linux 6.13 and later a look at the
    /// time of the last change makes the next write set an exact one, which costs twice the write.
    #[cfg(target_os = "linux")]
    fn is_removed(&self) -> bool {
        use rustix::fs::{AtFlags, StatxFlags, statx};
        let found = statx(&self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
        found.map_or(true, |found| found.stx_nlink == 0)
    }

    #[cfg(not(target_os = "linux"))]
    fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.file).map_or(true, |found| found.st_nlink == 0)
    }
}

impl<'a> Locked<'a> {
    /// Reads a file that was just locked.
    fn read(store: &'a mut Store, dir: &Dir) -> Result<Self, Trouble> {
        let mut locked = Self {
            store,
            line: Line::default(),
            from: None,
        };
        let store = &mut *locked.store;
        read(&store.file, &store.path, &mut store.bytes)?;
        let found = record::current(&store.bytes).map_err(|fault| fault.of(store.path.clone()))?;
        (locked.line, locked.from) = match found {
            // The name is new, or comes back.
            None => (Line::new(dir.floor.get()?), None),
            Some(record) if record.name == store.name.as_str() => {
                (record.line(&store.boot), Some(record.spot))
            }
            Some(record) => {
                return Err(Fault::OtherName(record.name.to_owned()).of(store.path.clone()));
            }
        };
        Ok(locked)
    }

    /// Makes the line as it is now the file's state; the one before it stands until the last byte is written.
    pub(super) fn write(&mut self) -> Result<(), Trouble> {
        let (store, from) = (&mut *self.store, self.from);
        let sequence = from.map_or(1, |spot| spot.sequence.saturating_add(1));
        record::encode(
            &mut store.next,
            sequence,
            &store.boot,
            &store.name,
            &self.line,
        );
        if let Some(spot) = from
            && record::same(&store.next, &store.bytes[spot.at..spot.at + spot.len])
        {
            return Ok(());
        }
        let len = store.next.len();
        let at = from.map_or(0, |spot| spot.next(len));
        let written = rustix::io::pwrite(&store.file, &store.next, at as u64);
        if written != Ok(len) {
            // A half of a first record would look like damage.
            if from.is_none() {
                let _ = rustix::fs::ftruncate(&store.file, 0);
            }
            let errno = written.err().unwrap_or(Errno::NOSPC);
            return Err(Trouble::io("write", &store.path, errno));
        }
        if at == 0 && store.bytes.len() > LARGE && len <= PAGE {
            let _ = rustix::fs::ftruncate(&store.file, PAGE as u64);
        }
        Ok(())
    }

    /// Removes the file of an idle line, unless that has to wait: says whether. A process that has it open finds that
    /// out once it gets the lock, and looks for the new one.
    pub(super) fn remove(self, dir: &Dir) -> Result<bool, Trouble> {
        let store = &*self.store;
        if !dir.floor.raise(self.line.last_fence())? {
            return Ok(false);
        }
        let removed = rustix::fs::unlink(&store.path);
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
pub(super) fn read(file: impl AsFd, path: &Path, into: &mut Vec<u8>) -> Result<(), Trouble> {
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

/// Tries a lock as often as is worth it without sleeping. False if another process keeps it.
pub(super) fn try_flock(file: &File, how: FlockOperation) -> Result<bool, Errno> {
    for _ in 0..TRIES {
        match rustix::fs::flock(file, how) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::yield_now(),
            Err(errno) => return Err(errno),
        }
    }
    Ok(false)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
