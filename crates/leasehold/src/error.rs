//! One error type: what went wrong, at which step, and whether it may have happened anyway.

use std::error::Error as StdError;
use std::fmt;

use crate::name::Name;

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: its kind, its step, the engine and the name, and whether the operation may have happened anyway.
///
/// Busy is not an error: a try or a wait that ran out of time answers `None`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use leasehold::engine::Step;
/// use leasehold::ErrorKind;
///
/// let error = leasehold::connect("carrier-pigeon:").await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Config);
/// assert_eq!(error.step(), Step::Connect);
/// assert!(!error.may_have_happened());
/// assert!(error.to_string().contains("memory:")); // the schemes that are known
/// # }
/// ```
// Boxed: an error is rare and large, and every waiting future carries room for one.
pub struct Error(Box<Parts>);

struct Parts {
    kind: ErrorKind,
    step: Step,
    engine: Option<&'static str>,
    name: Option<Name>,
    happened: Happened,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    No,
    Perhaps,
}

/// The kinds of errors; each has a [code](ErrorKind::code) that does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call itself was wrong: a bad name, no permits, a lease out of range.
    Invalid,
    /// The name is in use with another capacity.
    Conflict,
    /// The URL or a setting was wrong.
    Config,
    /// The engine denies it to this login.
    Denied,
    /// The engine could not be reached, or could not do it now.
    Unavailable,
    /// A step took longer than it may.
    TimedOut,
    /// The engine cannot do this at all.
    Unsupported,
    /// The grant ended without the caller releasing it.
    Lost,
    /// A barrier broke: another member died or gave up.
    Broken,
    /// The client was shut down, or the runtime that connected it is gone.
    Closed,
}

impl ErrorKind {
    /// Every kind, for tables and tests.
    pub const ALL: &[Self] = &[
        Self::Invalid,
        Self::Conflict,
        Self::Config,
        Self::Denied,
        Self::Unavailable,
        Self::TimedOut,
        Self::Unsupported,
        Self::Lost,
        Self::Broken,
        Self::Closed,
    ];

    /// A short word for programs; never changes.
    ///
    /// ```
    /// assert_eq!(leasehold::ErrorKind::Lost.code(), "lost");
    /// ```
    pub const fn code(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Conflict => "conflict",
            Self::Config => "config",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::TimedOut => "timed-out",
            Self::Unsupported => "unsupported",
            Self::Lost => "lost",
            Self::Broken => "broken",
            Self::Closed => "closed",
        }
    }
}

/// The step at which something went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Step {
    /// Checking a name.
    Name,
    /// Understanding the URL, reaching the engine.
    Connect,
    /// Opening a session.
    Open,
    /// Waiting for a turn inside this process.
    Turn,
    /// Asking the engine for the name.
    Claim,
    /// Waiting in the engine's line.
    Wait,
    /// Keeping a claim alive.
    Heartbeat,
    /// Using what is held.
    Hold,
    /// Giving it back.
    Release,
    /// Looking at lines.
    Inspect,
    /// Taking a lock away from its holder.
    Evict,
    /// Asking a holder to give a lock up.
    Ask,
    /// Reading or writing a store.
    Store,
    /// Closing the session.
    Close,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "name",
            Self::Connect => "connect",
            Self::Open => "open",
            Self::Turn => "turn",
            Self::Claim => "claim",
            Self::Wait => "wait",
            Self::Heartbeat => "heartbeat",
            Self::Hold => "hold",
            Self::Release => "release",
            Self::Inspect => "inspect",
            Self::Evict => "evict",
            Self::Ask => "ask",
            Self::Store => "store",
            Self::Close => "close",
        })
    }
}

impl Error {
    /// An error that says nothing happened. For authors of engines.
    ///
    /// ```
    /// use leasehold::engine::Step;
    /// use leasehold::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Denied, Step::Open, "wrong password").on("redis");
    /// assert_eq!(error.to_string(), "redis: open: wrong password");
    /// ```
    pub fn new(kind: ErrorKind, step: Step, message: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            kind,
            step,
            engine: None,
            name: None,
            happened: Happened::No,
            message: cut(message.into()),
            source: None,
        }))
    }

    /// Names the engine.
    #[must_use]
    pub fn on(mut self, engine: &'static str) -> Self {
        self.0.engine = Some(engine);
        self
    }

    /// Names what was to be locked.
    #[must_use]
    pub fn of(mut self, name: &Name) -> Self {
        self.0.name = Some(name.clone());
        self
    }

    /// Says that the operation may have happened anyway: the answer is not known.
    #[must_use]
    pub fn perhaps(mut self) -> Self {
        self.0.happened = Happened::Perhaps;
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// At which step.
    pub fn step(&self) -> Step {
        self.0.step
    }

    /// On which engine, where one was involved.
    pub fn engine(&self) -> Option<&'static str> {
        self.0.engine
    }

    /// On which name, where one was involved.
    pub fn name(&self) -> Option<&Name> {
        self.0.name.as_ref()
    }

    /// The message without engine, step and name: for an engine that tells one refusal to several calls.
    #[cfg(any(feature = "zookeeper", feature = "etcd", feature = "consul"))]
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the operation may have happened although it failed. A claim that it left behind ends with its lease.
    pub fn may_have_happened(&self) -> bool {
        self.0.happened == Happened::Perhaps
    }

    /// Whether this is [`ErrorKind::Lost`].
    pub fn is_lost(&self) -> bool {
        self.0.kind == ErrorKind::Lost
    }

    /// Whether trying again later may succeed: the engine could not be reached, or did not answer in time.
    ///
    /// ```
    /// use leasehold::engine::Step;
    /// use leasehold::{Error, ErrorKind};
    /// assert!(Error::new(ErrorKind::Unavailable, Step::Open, "loading").is_transient());
    /// assert!(!Error::new(ErrorKind::Denied, Step::Open, "wrong password").is_transient());
    /// ```
    pub fn is_transient(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unavailable | ErrorKind::TimedOut)
    }

    /// Whether every other request for the same name would meet it too.
    pub(crate) fn is_for_all(&self) -> bool {
        !matches!(
            self.0.kind,
            ErrorKind::Invalid | ErrorKind::Conflict | ErrorKind::Unsupported
        )
    }

    /// Says more at the end of the message.
    pub(crate) fn noting(mut self, more: &str) -> Self {
        let message = &mut self.0.message;
        message.push_str(": ");
        message.push_str(more);
        self
    }

    /// Says how often and how long it was tried.
    pub(crate) fn tried(mut self, attempts: u32, passed: std::time::Duration) -> Self {
        let seconds = passed.as_secs_f64();
        let more = format!(" (tried {attempts} times in {seconds:.1} s)");
        self.0.message.push_str(&more);
        self
    }

    /// The same error for another task; the cause stays with the first.
    pub(crate) fn again(&self) -> Self {
        let parts = &*self.0;
        Self(Box::new(Parts {
            kind: parts.kind,
            step: parts.step,
            engine: parts.engine,
            name: parts.name.clone(),
            happened: parts.happened,
            message: parts.message.clone(),
            source: None,
        }))
    }

    pub(crate) fn closed(step: Step) -> Self {
        let what = "the client was shut down, or the runtime that connected it is gone";
        Self::new(ErrorKind::Closed, step, what)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.0;
        if let Some(engine) = parts.engine {
            write!(f, "{engine}: ")?;
        }
        write!(f, "{}", parts.step)?;
        if let Some(name) = &parts.name {
            write!(f, " of {name:?}")?;
        }
        write!(f, ": {}", parts.message)?;
        if parts.happened == Happened::Perhaps {
            f.write_str(" (it may have happened anyway)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {self}", self.0.kind.code())?;
        let mut cause = StdError::source(self);
        while let Some(source) = cause {
            write!(f, "\n  because: {source}")?;
            cause = source.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// The longest message, in bytes. Servers may say more than a log or a terminal should have.
const LONGEST: usize = 2_000;

fn cut(mut message: String) -> String {
    if message.len() > LONGEST {
        message.truncate(message.floor_char_boundary(LONGEST));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_an_end() {
        let long = "é".repeat(1_000_000);
        let error = Error::new(ErrorKind::Unavailable, Step::Claim, long).on("redis");
        let told = error.to_string();
        assert!(
            told.len() < LONGEST + 50 && told.ends_with('…'),
            "{}",
            told.len()
        );
        assert!(format!("{error:?}").len() < 3 * LONGEST);
    }

    #[test]
    fn says_engine_step_name_and_doubt_on_one_line() {
        let name = Name::new("stock").unwrap();
        let error = Error::new(ErrorKind::Unavailable, Step::Claim, "no answer in 2 s")
            .on("redis")
            .of(&name)
            .perhaps()
            .because(std::io::Error::other("reset"));
        assert_eq!(
            error.to_string(),
            "redis: claim of \"stock\": no answer in 2 s (it may have happened anyway)"
        );
        assert!(format!("{error:?}").contains("because: reset"));
    }

    #[test]
    fn codes_are_unique() {
        let codes: std::collections::BTreeSet<_> =
            ErrorKind::ALL.iter().map(|k| k.code()).collect();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
    }
}
