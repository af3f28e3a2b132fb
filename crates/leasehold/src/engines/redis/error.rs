//! Errors of a connection and of a server, and their meaning for the caller.

use std::fmt;

use super::client::Address;
use crate::error::{Error, ErrorKind, Step};

/// Something between us and a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// There is no connection: nothing was sent.
    Down(String),
    /// The connection ended before the answer came.
    Cut(String),
    /// The answer did not come in time.
    Silent,
    /// The server refused. The code is its first word.
    Refused { code: String, detail: String },
    /// The server does not let us in, or does not let us do this.
    Denied(String),
    /// Fewer replicas than wanted have it.
    Few { have: u32, need: u32 },
    /// The answer is none that the request can have.
    Strange(String),
    /// The URL or a file it names was wrong.
    Config(String),
    /// The server cannot do what is needed.
    Unfit(String),
}

impl Trouble {
    pub(super) fn strange(what: impl fmt::Debug) -> Self {
        let text = format!("{what:?}").chars().take(200).collect();
        Self::Strange(text)
    }

    pub(super) fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            _ => "",
        }
    }

    /// The meaning of a refused HELLO.
    pub(super) fn at_login(self) -> Self {
        let Self::Refused { code, detail } = &self else {
            return self;
        };
        match code.as_str() {
            "NOAUTH" => {
                Self::Denied("this server wants a password: redis://:PASSWORD@HOST".to_owned())
            }
            "WRONGPASS" => Self::Denied("the user or the password is wrong".to_owned()),
            "NOPROTO" => Self::old_protocol(),
            "ERR" if detail.contains("unknown command") => Self::old_protocol(),
            "ERR" if detail.contains("DB index") => {
                Self::Config(format!("the server has no such database: {detail}"))
            }
            _ => self,
        }
    }

    fn old_protocol() -> Self {
        let what = "the server does not speak RESP3: use Redis 6.2 or later, without a proxy that speaks RESP2 only";
        Self::Unfit(what.to_owned())
    }

    /// The same, with the name of the server.
    pub(super) fn from(self, address: &Address) -> Self {
        let name = address.to_string();
        let named = |what: String| match what.contains(&name) {
            true => what,
            false => format!("{name}: {what}"),
        };
        match self {
            Self::Down(what) => Self::Down(named(what)),
            Self::Cut(what) => Self::Cut(named(what)),
            Self::Denied(what) => Self::Denied(named(what)),
            Self::Config(what) => Self::Config(named(what)),
            Self::Unfit(what) => Self::Unfit(named(what)),
            Self::Strange(what) => Self::Strange(named(what)),
            Self::Silent => Self::Down(named("no answer in time".to_owned())),
            Self::Refused { code, detail } => Self::Refused {
                code,
                detail: format!("{detail} ({name})"),
            },
            few @ Self::Few { .. } => few,
        }
    }

    /// Whether asking again in the same way is of no use.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Refused { code, .. } => DENIED.contains(&code.as_str()),
            Self::Config(_) | Self::Unfit(_) | Self::Denied(_) => true,
            _ => false,
        }
    }

    /// Whether one line alone could not be done: a key of it is of another program.
    pub(super) fn is_of_the_line(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "WRONGTYPE" || code == "ERR")
    }

    /// Whether the server did nothing because it cannot now, or another server must.
    pub(super) fn is_passing(&self) -> bool {
        PASSING.contains(&self.code())
    }

    /// Whether the server has not all keys of the call because their slot is on its way to another one.
    pub(super) fn is_migration(&self) -> bool {
        matches!(self.code(), "ASK" | "TRYAGAIN")
    }

    pub(super) fn at(self, step: Step) -> Error {
        let what = self.to_string();
        // A look changes nothing.
        let perhaps = step != Step::Inspect
            && matches!(
                self,
                Self::Cut(_) | Self::Silent | Self::Few { .. } | Self::Strange(_)
            );
        let kind = match self {
            Self::Down(_) | Self::Cut(_) | Self::Few { .. } | Self::Strange(_) => {
                ErrorKind::Unavailable
            }
            Self::Silent => ErrorKind::TimedOut,
            Self::Config(_) => ErrorKind::Config,
            Self::Unfit(_) => ErrorKind::Unsupported,
            Self::Denied(_) => ErrorKind::Denied,
            Self::Refused { code, detail } => match code.as_str() {
                code if DENIED.contains(&code) => ErrorKind::Denied,
                // A right that is missing inside the script.
                "ERR" if detail.contains("can't run this command") => ErrorKind::Denied,
                _ => ErrorKind::Unavailable,
            },
        };
        let error = Error::new(kind, step, what).on("redis");
        if perhaps { error.perhaps() } else { error }
    }
}

const DENIED: &[&str] = &["NOAUTH", "WRONGPASS", "NOPERM"];

const PASSING: &[&str] = &[
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "MOVED",
    "ASK",
    "BUSY",
];

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down(what) | Self::Denied(what) | Self::Config(what) | Self::Unfit(what) => {
                f.write_str(what)
            }
            Self::Cut(why) => write!(f, "the connection was lost: {why}"),
            Self::Silent => f.write_str("no answer in time"),
            Self::Few { have, need } => {
                write!(
                    f,
                    "{have} replicas confirmed the write in time, and {need} must"
                )
            }
            Self::Strange(what) => write!(
                f,
                "the server gave an answer that this request cannot have: {what}"
            ),
            Self::Refused { code, detail } => write!(f, "{code} {detail}"),
        }
    }
}
