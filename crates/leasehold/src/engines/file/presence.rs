//! Which sessions are alive: a session is a file that its process keeps locked. The kernel unlocks it when the process ends,
//! however it ends.

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use tokio::sync::mpsc::UnboundedSender;

use super::dir::{Dir, open_file};
use super::error::Trouble;
use super::store::try_flock;
use crate::claim::SessionId;
use crate::identity::Identity;
use crate::sync::Shared;

/// The most that is read of a session's file.
const IDENTITY: usize = 4096;

/// A session's file, locked for as long as this value lives.
#[derive(Debug)]
pub(super) struct Presence {
    pub(super) id: SessionId,
    file: File,
    path: PathBuf,
    socket: PathBuf,
}

impl Presence {
    pub(super) fn open(dir: &Dir, who: &Identity) -> Result<Self, Trouble> {
        loop {
            let id = SessionId::random();
            let path = dir.session(id);
            let file = open_file(&path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)?;
            let got = try_flock(&file, FlockOperation::NonBlockingLockExclusive);
            let got = got.map_err(|errno| Trouble::io("lock", &path, errno))?;
            let presence = Self {
                id,
                socket: dir.socket(id),
                path,
                file,
            };
            // Before it was locked it looked like a dead one, and may have been cleared away.
            if !got || presence.is_gone() {
                continue;
            }
            let text = format!("{}\n{}\n{}", who.host, who.pid, who.command);
            // For people only: a full disk is no reason to fail.
            let _ = (&presence.file).write_all(text.as_bytes());
            return Ok(presence);
        }
    }

    /// Whether the file was removed: to all others this session is dead.
    fn is_gone(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|found| found.st_nlink == 0)
    }

    /// Refuses to work on if the file is gone.
    pub(super) fn check(&self) -> Result<(), Trouble> {
        match self.is_gone() {
            true => Err(Trouble::io("find", &self.path, Errno::NOENT)),
            false => Ok(()),
        }
    }

    /// Like [`is_gone`](Self::is_gone), and also notices a directory that was moved away.
    pub(super) fn is_elsewhere(&self) -> bool {
        let here = rustix::fs::fstat(&self.file).map(|found| found.st_ino);
        match std::fs::symlink_metadata(&self.path) {
            Ok(found) => here.is_ok_and(|here| here != found.ino()),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// Keeps programs away that clear old files out of temporary directories. A line's file is new with every heartbeat.
    pub(super) fn touch(&self) {
        touch(&self.path);
        touch(&self.socket);
    }
}

/// Makes a file look new, if it is there.
fn touch(path: &Path) {
    let now = rustix::fs::Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_NOW,
    };
    let now = rustix::fs::Timestamps {
        last_access: now,
        last_modification: now,
    };
    let follow = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    let _ = rustix::fs::utimensat(rustix::fs::CWD, path, &now, follow);
}

impl Drop for Presence {
    fn drop(&mut self) {
        clear(&self.path, &self.socket);
    }
}

fn clear(session: &Path, socket: &Path) {
    let _ = rustix::fs::unlink(socket);
    let _ = rustix::fs::unlink(session);
}

/// Whether a session has ended. Its leftover files are removed. In doubt it lives, and its lease decides.
pub(super) fn is_dead(dir: &Dir, id: SessionId) -> bool {
    let path = dir.session(id);
    let file = match open_file(&path, OFlags::RDONLY) {
        Ok(file) => file,
        Err(trouble) => return trouble.is_missing(),
    };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
        return false;
    }
    clear(&path, &dir.socket(id));
    true
}

/// Which process a session is, for people.
pub(super) fn identity(dir: &Dir, id: SessionId) -> Option<Identity> {
    let file = open_file(&dir.session(id), OFlags::RDONLY).ok()?;
    let mut text = [0; IDENTITY];
    let read = file.read_at(&mut text, 0).ok()?;
    let text = String::from_utf8_lossy(&text[..read]);
    let mut parts = text.splitn(3, '\n');
    let (host, pid) = (parts.next()?, parts.next()?.parse().ok()?);
    Some(Identity::new(host, pid, parts.next()?))
}

/// The channels of this process on which the end of a session is told.
type Watched = HashMap<SessionId, Vec<UnboundedSender<SessionId>>>;

static WATCHED: LazyLock<Shared<Watched>> = LazyLock::new(Shared::default);

/// A thread per watched session; beyond this many, heartbeats look.
const WATCHERS: usize = 64;

/// Tells when a session ends, at once, without looking again and again: a thread of its own waits for the lock of the
/// session's file. It keeps neither the process nor a runtime from ending.
pub(super) fn watch(dir: &Dir, id: SessionId, tell: &UnboundedSender<SessionId>) {
    let mut watched = WATCHED.lock();
    if let Some(tells) = watched.get_mut(&id) {
        if !tells.iter().any(|known| known.same_channel(tell)) {
            tells.retain(|known| !known.is_closed());
            tells.push(tell.clone());
        }
        return;
    }
    if watched.len() >= WATCHERS {
        return;
    }
    let path = dir.session(id);
    let thread = std::thread::Builder::new()
        .name("leasehold-watch".into())
        .stack_size(64 * 1024);
    let started = thread.spawn(move || {
        wait_for_end(&path);
        let tells = WATCHED.lock().remove(&id);
        for tell in tells.into_iter().flatten() {
            let _ = tell.send(id);
        }
    });
    if started.is_ok() {
        let _ = watched.insert(id, vec![tell.clone()]);
    }
}

fn wait_for_end(path: &Path) {
    if let Ok(file) = open_file(path, OFlags::RDONLY) {
        while rustix::fs::flock(&file, FlockOperation::LockShared) == Err(Errno::INTR) {}
    }
}
