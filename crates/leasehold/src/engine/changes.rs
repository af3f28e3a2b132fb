//! Events and errors from the changes and answers of a line.

use super::{Ended, Event, RW_CAPACITY};
use crate::claim::Claim;
use crate::clock::micros;
use crate::error::{Error, ErrorKind, Step};
use crate::line::{Ask, Change, LINE_MAX, Refusal, What};

impl Claim {
    /// The claim as a line takes it.
    #[doc(hidden)]
    pub fn ask(&self, session: super::SessionId) -> Ask {
        Ask {
            id: self.id,
            session,
            mode: self.mode,
            lease: micros(self.lease),
            waits: self.waits,
        }
    }
}

impl Change {
    /// The event to tell the claim's session. An eviction needs the evictor and the reason.
    pub fn event(&self, evicted: Option<&Ended>) -> Event {
        match self.what {
            What::Granted(held) => Event::Granted(self.claim, held),
            What::Wanted => Event::Wanted(self.claim),
            What::Expired => Event::Ended(self.claim, Ended::Expired),
            What::Evicted => {
                let ended = evicted.cloned().unwrap_or(Ended::Forgotten);
                Event::Ended(self.claim, ended)
            }
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Capacity(in_use) => {
                let what = format!(
                    "the name is in use {}; use it so, or wait until it is free",
                    used_as(in_use)
                );
                Self::new(ErrorKind::Conflict, Step::Claim, what)
            }
            Refusal::Weight => Self::new(
                ErrorKind::Invalid,
                Step::Claim,
                "more permits were asked for than the name has: ask for at most its number",
            ),
            Refusal::Full => Self::new(
                ErrorKind::Unavailable,
                Step::Claim,
                format!(
                    "{LINE_MAX} claims hold this name or wait for it, the most there may be; claim it from fewer tasks"
                ),
            ),
            Refusal::Fences => Self::new(
                ErrorKind::Unavailable,
                Step::Claim,
                "no fence is left below 2^63",
            ),
        }
    }
}

fn used_as(capacity: u32) -> String {
    match capacity {
        1 => "as a mutex".to_owned(),
        RW_CAPACITY => "as a read/write lock".to_owned(),
        permits => format!("as a semaphore of {permits}"),
    }
}
