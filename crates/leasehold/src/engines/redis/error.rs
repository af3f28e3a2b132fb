//! What goes wrong on the way to a server, and what that means for the caller.

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
    /// Fewer replicas than wanted have it.
    Few { have: u32, need: u32 },
    /// The answer made no sense.
    Strange(String),
    /// The URL or a file it names was wrong.
    Config(String),
    /// The server cannot do what is needed.
    Unfit(String),
}

impl Trouble {
    pub(super) fn strange(what: impl std::fmt::Debug) -> Self {
        let text = format!("{what:?}").chars().take(200).collect();
        Self::Strange(text)
    }

    pub(super) fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            _ => "",
        }
    }

    /// Whether the server does not know RESP3: an old one, or a proxy before it.
    pub(super) fn is_old_protocol(&self) -> bool {
        match self {
            Self::Refused { code, detail } => {
                code == "NOPROTO" || detail.contains("unknown command") && detail.contains("HELLO")
            }
            _ => false,
        }
    }

    /// Whether asking again in the same way is of no use.
    pub(super) fn is_final(&self) -> bool {
        let denied = ["NOAUTH", "WRONGPASS", "NOPERM"];
        match self {
            Self::Refused { code, .. } => denied.contains(&code.as_str()),
            Self::Config(_) | Self::Unfit(_) => true,
            _ => false,
        }
    }

    /// Whether one line alone could not be done: a key of it is of another program.
    pub(super) fn is_of_the_line(&self) -> bool {
        matches!(self, Self::Refused { code, .. } if code == "WRONGTYPE" || code == "ERR")
    }

    /// Whether the server did nothing because it cannot now, or another server must.
    pub(super) fn is_passing(&self) -> bool {
        let passing = [
            "READONLY",
            "LOADING",
            "MASTERDOWN",
            "CLUSTERDOWN",
            "TRYAGAIN",
            "MOVED",
            "ASK",
            "BUSY",
        ];
        passing.contains(&self.code())
    }

    pub(super) fn at(self, step: Step) -> Error {
        let (kind, perhaps, what) = match self {
            Self::Down(why) => (ErrorKind::Unavailable, false, why),
            Self::Cut(why) => (
                ErrorKind::Unavailable,
                true,
                format!("the connection was lost: {why}"),
            ),
            Self::Silent => (ErrorKind::TimedOut, true, "no answer in time".to_owned()),
            Self::Few { have, need } => {
                let what = format!("{have} replicas have it in time, and {need} must");
                (ErrorKind::Unavailable, true, what)
            }
            Self::Strange(what) => (
                ErrorKind::Unavailable,
                true,
                format!("an answer that makes no sense: {what}"),
            ),
            Self::Config(what) => (ErrorKind::Config, false, what),
            Self::Unfit(what) => (ErrorKind::Unsupported, false, what),
            Self::Refused { code, detail } => {
                let what = format!("{code} {detail}");
                match code.as_str() {
                    "NOAUTH" | "WRONGPASS" | "NOPERM" => (ErrorKind::Denied, false, what),
                    // A right that is missing inside the script.
                    "ERR" if what.contains("can't run this command") => {
                        (ErrorKind::Denied, false, what)
                    }
                    _ => (ErrorKind::Unavailable, false, what),
                }
            }
        };
        let error = Error::new(kind, step, what).on("redis");
        if perhaps { error.perhaps() } else { error }
    }
}
