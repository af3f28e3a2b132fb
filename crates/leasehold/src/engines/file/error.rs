//! Errors of files, and what to do about them.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{Error, ErrorKind, Step};

/// Something went wrong with a path. It becomes an [`Error`] once it is known at which step.
#[derive(Debug)]
pub(super) struct Trouble {
    kind: ErrorKind,
    message: String,
    errno: Option<Errno>,
}

impl Trouble {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            kind,
            message,
            errno: None,
        }
    }

    /// An operation of the system failed: `what` is what was tried, as in "write".
    pub(super) fn io(what: &str, path: &Path, errno: Errno) -> Self {
        let (kind, hint) = hint(errno);
        Self {
            kind,
            message: format!("cannot {what} {}: {errno}{hint}", path.display()),
            errno: Some(errno),
        }
    }

    /// The session is closed.
    pub(super) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client was shut down")
    }

    /// The directory, or something in it, is not there.
    pub(super) fn is_missing(&self) -> bool {
        self.errno == Some(Errno::NOENT)
    }

    pub(super) fn at(self, step: Step) -> Error {
        let error = Error::new(self.kind, step, self.message).on("file");
        match self.errno {
            Some(errno) => error.because(std::io::Error::from(errno)),
            None => error,
        }
    }
}

/// The kind of a failure, and what to do about it.
fn hint(errno: Errno) -> (ErrorKind, &'static str) {
    match errno {
        Errno::ACCESS | Errno::PERM | Errno::ROFS => (
            ErrorKind::Denied,
            "; name a directory that this user can write to, the same for every program that shares these locks, as in \
             file:DIR",
        ),
        Errno::NOSPC | Errno::DQUOT => (
            ErrorKind::Unavailable,
            "; free some space there. Held locks stay held, and can be released",
        ),
        Errno::MFILE | Errno::NFILE => (
            ErrorKind::Unavailable,
            "; raise the limit of open files (ulimit -n)",
        ),
        Errno::NOENT => (
            ErrorKind::Unavailable,
            "; if it was removed while in use, try again",
        ),
        _ => (ErrorKind::Unavailable, ""),
    }
}

/// Why a file is no state of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is a pipe, a link, a directory, a device.
    NotRegular,
    /// It never was.
    Foreign,
    /// A later version wrote it.
    Newer(u32),
    /// No whole record is left in it.
    Torn,
    /// It belongs to this other name.
    OtherName(String),
}

impl Fault {
    pub(super) fn of(self, path: PathBuf) -> Trouble {
        let kind = match self {
            Self::Newer(_) => ErrorKind::Unsupported,
            _ => ErrorKind::Unavailable,
        };
        Trouble::new(kind, format!("{} {self}", path.display()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRegular => f.write_str(
                "is not a regular file: another program put it there. Remove it, or use another directory",
            ),
            Self::Foreign => f.write_str(
                "is not a lock's file: another program wrote it. Move it away, or use another directory",
            ),
            Self::Newer(version) => write!(
                f,
                "was written in format {version} by a later version: bring every program that uses this directory to \
                 the same version"
            ),
            Self::Torn => f.write_str(
                "is damaged: no whole record is left. Stop the programs that use this lock, remove the file, and \
                 start them again. Other locks are not concerned",
            ),
            Self::OtherName(name) => write!(
                f,
                "belongs to the name {name:?}: it was copied or renamed. Move it away"
            ),
        }
    }
}
