//! The exit codes of the command, in one table. None is ever renumbered.

use std::error::Error as _;
use std::fmt;

use leasehold::ErrorKind;

/// Why the command itself failed. The numbers are those of `sysexits.h` where it has a word for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Free,
    Usage,
    Unavailable,
    Bug,
    Io,
    Busy,
    Lost,
    Denied,
    Config,
    NotExecutable,
    NotFound,
}

/// A code, and what it means in the manual.
type Row = (Exit, u8, &'static str);

/// Every code that is not the child's own.
const TABLE: &[Row] = &[
    (
        Exit::Free,
        1,
        "of `status NAME` alone: no process holds the name or waits for it",
    ),
    (
        Exit::Usage,
        64,
        "bad usage: a wrong argument or name, a name in use another way, a lock an ancestor already holds",
    ),
    (
        Exit::Unavailable,
        69,
        "the engine could not be reached, did not answer in time, or cannot do this",
    ),
    (Exit::Bug, 70, "a bug of this command"),
    (Exit::Io, 74, "reading or writing failed"),
    (
        Exit::Busy,
        75,
        "busy: another process holds the lock (--no-wait, or --wait ran out); --busy-code sets another code",
    ),
    (
        Exit::Lost,
        76,
        "lost: the lock was evicted or could not be renewed; the command was stopped",
    ),
    (Exit::Denied, 77, "not allowed"),
    (
        Exit::Config,
        78,
        "bad configuration: the URL or one of its options",
    ),
    (
        Exit::NotExecutable,
        126,
        "the command was found but could not be run",
    ),
    (Exit::NotFound, 127, "the command was not found"),
];

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> u8 {
        let row = TABLE.iter().find(|(exit, ..)| *exit == self);
        row.map_or(70, |(_, code, _)| *code)
    }
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid | ErrorKind::Conflict => Self::Usage,
            ErrorKind::Config => Self::Config,
            ErrorKind::Denied => Self::Denied,
            ErrorKind::Unavailable
            | ErrorKind::TimedOut
            | ErrorKind::Unsupported
            | ErrorKind::Closed
            // Of a barrier, which the command has none of.
            | ErrorKind::Broken => Self::Unavailable,
            ErrorKind::Lost => Self::Lost,
            // A kind this command does not know: the test over all kinds finds it.
            _ => Self::Bug,
        }
    }
}

/// The code of a process that a signal ended, as shells count.
pub(crate) fn of_signal(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}

/// The table as the manual prints it.
pub(crate) fn manual() -> String {
    let mut text =
        String::from("Exit codes:\n  0-255  the exit code of the command, when it ran\n");
    for (_, code, meaning) in TABLE {
        text += &format!("  {code:<5}  {meaning}\n");
    }
    text + "  128+n  signal n ended the command, or the wait for the lock"
}

/// A failure of the command itself: what to say and how to exit.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { exit, message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<leasehold::Error> for Failure {
    fn from(error: leasehold::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(source) = cause {
            message += &format!(": {source}");
            cause = source.source();
        }
        Self::new(Exit::from(error.kind()), message)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Io, error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::from(std::io::Error::from(errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_a_code_of_its_own_meaning() {
        for kind in ErrorKind::ALL {
            assert_ne!(Exit::from(*kind), Exit::Bug, "{kind:?} has no exit code");
        }
        let code = |kind| Exit::from(kind).code();
        assert_eq!(code(ErrorKind::Lost), 76);
        assert_eq!(code(ErrorKind::Invalid), 64);
        assert_eq!(code(ErrorKind::Config), 78);
        assert_eq!(code(ErrorKind::Unsupported), 69);
        assert_eq!(code(ErrorKind::Denied), 77);
        assert_eq!(Exit::Busy.code(), 75);
    }

    #[test]
    fn the_manual_has_every_row_once() {
        let manual = manual();
        for (exit, code, meaning) in TABLE {
            assert_eq!(exit.code(), *code);
            assert_eq!(manual.matches(&format!("\n  {code} ")).count(), 1, "{code}");
            assert!(manual.contains(meaning));
        }
    }

    #[test]
    fn signals_count_from_128() {
        assert_eq!(of_signal(15), 143);
        assert_eq!(of_signal(200), 255);
    }
}
