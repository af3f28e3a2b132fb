//! One line's file: opened, locked, and mapped once it is worth it.

mod locked;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

pub(super) use self::locked::Locked;
use super::dir::Dir;
use super::error::Trouble;
use super::floor::Floor;
use super::page::{PAGE, Page};
use super::record::{BootId, Spot};
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
        let mut locked = Locked::new(self);
        let store = locked.store();
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

#[cfg(test)]
mod tests;
