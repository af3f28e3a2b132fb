//! One request for a name.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Step};
use crate::name::Name;

/// The capacity of a line that is a read/write lock.
pub const RW_CAPACITY: u32 = u32::MAX;

/// How a name is claimed. For the line it is only a weight against a capacity.
///
/// ```
/// use leasehold::engine::Mode;
///
/// assert_eq!((Mode::Mutex.weight(), Mode::Mutex.capacity()), (1, 1));
/// assert_eq!(Mode::Write.weight(), Mode::Read.capacity());
/// let two = Mode::Permits { count: 2, of: 4 };
/// assert_eq!((two.weight(), two.capacity()), (2, 4));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Alone.
    Mutex,
    /// Together with other readers.
    Read,
    /// Alone, on a read/write lock.
    Write,
    /// Some of a semaphore's permits.
    Permits {
        /// How many are asked for.
        count: u32,
        /// How many there are.
        of: u32,
    },
}

impl Mode {
    /// How much of the line's capacity the claim takes.
    pub const fn weight(self) -> u32 {
        match self {
            Self::Mutex | Self::Read => 1,
            Self::Write => RW_CAPACITY,
            Self::Permits { count, .. } => count,
        }
    }

    /// The capacity of the line the claim belongs to.
    pub const fn capacity(self) -> u32 {
        match self {
            Self::Mutex => 1,
            Self::Read | Self::Write => RW_CAPACITY,
            Self::Permits { of, .. } => of,
        }
    }

    /// Whether the claim takes the whole line.
    pub const fn exclusive(self) -> bool {
        self.weight() == self.capacity()
    }

    /// The mode a stored weight and capacity stand for. A semaphore of one is a mutex.
    pub const fn of(weight: u32, capacity: u32) -> Self {
        match (weight, capacity) {
            (1, 1) => Self::Mutex,
            (RW_CAPACITY, RW_CAPACITY) => Self::Write,
            (1, RW_CAPACITY) => Self::Read,
            (count, of) => Self::Permits { count, of },
        }
    }

    /// Refuses permits that no line can give.
    pub(crate) fn check(self) -> Result<(), Error> {
        let Self::Permits { count, of } = self else {
            return Ok(());
        };
        let refuse = |what: String| Err(Error::new(ErrorKind::Invalid, Step::Claim, what));
        match (count, of) {
            (_, 0) => refuse("a semaphore has at least 1 permit; 0 were given".into()),
            (_, RW_CAPACITY) => refuse(format!(
                "a semaphore has at most {} permits",
                RW_CAPACITY - 1
            )),
            (0, _) => refuse("0 permits were asked for; ask for at least 1".into()),
            (count, of) if count > of => refuse(format!(
                "{count} permits were asked for, and the semaphore has {of}: this could never be granted"
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mutex => f.write_str("mutex"),
            Self::Read => f.write_str("read"),
            Self::Write => f.write_str("write"),
            Self::Permits { count, of } => write!(f, "{count} of {of}"),
        }
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u128);

        impl $name {
            /// A fresh one: 128 bits from a generator that the operating system seeds.
            pub fn random() -> Self {
                Self(rand::random())
            }

            /// From its number, as an engine stored it.
            pub const fn from_u128(id: u128) -> Self {
                Self(id)
            }

            /// The number, for an engine to store.
            pub const fn as_u128(self) -> u128 {
                self.0
            }
        }

        impl fmt::Debug for $name {
            // A process that knows an id can release its claim: logs get the first digits only.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:06x}…", self.0 >> 104)
            }
        }
    };
}

random_id! {
    /// Identifies one claim. A process that knows it can release the claim, so it stays out of logs.
    ClaimId
}
random_id! {
    /// Identifies one session of one engine.
    SessionId
}

/// Things by a random id, which is its own hash, or by a name, which knows its own.
pub(crate) type ById<Id, T> = HashMap<Id, T, BuildHasherDefault<IdHasher>>;

#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write_u128(&mut self, id: u128) {
        self.0 = id as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One request for a name, as an engine sees it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Claim {
    /// Fresh for every attempt.
    pub id: ClaimId,
    /// The name that is claimed.
    pub name: Name,
    /// Weight and capacity.
    pub mode: Mode,
    /// How long the claim lasts after its session's last word.
    pub lease: Duration,
    /// Whether to join the line when there is no room now. A try does not.
    pub waits: bool,
    /// Whether a grant counts only once the engine's own answer has told it: no message of another client may make one up.
    pub confirmed: bool,
}

impl Claim {
    /// A claim that waits, with a fresh id.
    pub fn new(name: Name, mode: Mode, lease: Duration) -> Self {
        Self {
            id: ClaimId::random(),
            name,
            mode,
            lease,
            waits: true,
            confirmed: false,
        }
    }

    /// The same claim as a try: granted at once or not at all.
    #[must_use]
    pub fn tries(mut self) -> Self {
        self.waits = false;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_that_no_line_can_give_are_refused_with_the_reason() {
        let refused = |count, of| Mode::Permits { count, of }.check().unwrap_err().to_string();
        assert!(refused(1, 0).contains("at least 1 permit; 0 were given"));
        assert!(refused(0, 2).contains("0 permits were asked for"));
        assert!(refused(3, 2).contains("3 permits were asked for, and the semaphore has 2"));
        assert!(refused(1, RW_CAPACITY).contains("a semaphore has at most"));
        assert!(Mode::Permits { count: 2, of: 2 }.check().is_ok());
        assert!(Mode::Write.check().is_ok());
    }

    #[test]
    fn a_mode_is_its_weight_and_its_capacity() {
        let (all, some) = (
            Mode::Permits { count: 3, of: 3 },
            Mode::Permits { count: 2, of: 3 },
        );
        assert!(Mode::Mutex.exclusive() && Mode::Write.exclusive() && all.exclusive());
        assert!(!Mode::Read.exclusive() && !some.exclusive());
        for mode in [Mode::Mutex, Mode::Read, Mode::Write, all, some] {
            assert_eq!(Mode::of(mode.weight(), mode.capacity()), mode);
        }
        let words = [Mode::Mutex, Mode::Read, Mode::Write, some].map(|mode| mode.to_string());
        assert_eq!(words, ["mutex", "read", "write", "2 of 3"]);
    }
}
