//! Which of Redisson's objects a claim is for, and the keys and channels of that object.

use super::super::error::Trouble;
use crate::claim::Mode;
use crate::engine::Params;
use crate::name::Name;

/// The kinds of Redisson objects that the URL chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Kinds {
    mutex: Kind,
    semaphore: Kind,
}

/// One of Redisson's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `RLock`
    Lock,
    /// `RFencedLock`
    Fenced,
    /// `RFairLock`
    Fair,
    /// `RReadWriteLock`
    ReadWrite,
    /// `RSemaphore`
    Semaphore,
    /// `RPermitExpirableSemaphore`
    Permits,
}

impl Kinds {
    pub(in super::super) fn read(params: &mut Params) -> Result<Self, Trouble> {
        let mutex = match params.take("lock").as_deref() {
            None | Some("plain") => Kind::Lock,
            Some("fair") => Kind::Fair,
            Some("fenced") => Kind::Fenced,
            Some(other) => return Err(unknown("lock", other, "plain, fair or fenced")),
        };
        let semaphore = match params.take("semaphore").as_deref() {
            None | Some("expirable") => Kind::Permits,
            Some("plain") => Kind::Semaphore,
            Some(other) => return Err(unknown("semaphore", other, "expirable or plain")),
        };
        Ok(Self { mutex, semaphore })
    }

    pub(super) fn of(self, mode: Mode) -> Kind {
        match mode {
            Mode::Mutex => self.mutex,
            Mode::Read | Mode::Write => Kind::ReadWrite,
            Mode::Permits { .. } => self.semaphore,
        }
    }

    /// Where the fences of a mutex come from.
    pub(super) fn fences(self) -> &'static str {
        match self.mutex {
            Kind::Fenced => "the token of Redisson's RFencedLock, which Java's holders have too",
            _ => "ours, kept beside Redisson's lock; Java's holders have none",
        }
    }

    /// Every kind that a name may be of.
    pub(super) fn all(self) -> [Kind; 3] {
        [self.mutex, Kind::ReadWrite, self.semaphore]
    }
}

fn unknown(option: &str, given: &str, known: &str) -> Trouble {
    Trouble::Config(format!("{option}={given}: write {known}"))
}

impl Kind {
    /// The script's word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Lock | Self::Fenced => "lock",
            Self::Fair => "fair",
            Self::ReadWrite => "rw",
            Self::Semaphore => "semaphore",
            Self::Permits => "permits",
        }
    }

    /// The keys the script is given: the name as it is, ours, the channel, and what the kind has besides.
    pub(super) fn keys(self, name: &Name) -> Vec<String> {
        let mut keys = vec![name.to_string(), ours(name), self.channel(name)];
        match self {
            Self::Lock | Self::Semaphore => {}
            Self::Fenced => keys.push(before("redisson_lock_token", name)),
            Self::Fair => keys.extend(
                ["redisson_lock_queue", "redisson_lock_timeout"].map(|key| before(key, name)),
            ),
            Self::ReadWrite => keys.push(tagged(name)),
            Self::Permits => keys.push(format!("{}:timeout", tagged(name))),
        }
        keys
    }

    fn channel(self, name: &Name) -> String {
        let channel = match self {
            Self::Lock | Self::Fenced | Self::Fair => "redisson_lock__channel",
            Self::ReadWrite => "redisson_rwlock",
            Self::Semaphore | Self::Permits => "redisson_sc",
        };
        before(channel, name)
    }

    /// Where one waiter listens.
    pub(super) fn waits_on(self, name: &Name, owner: &str) -> String {
        let channel = self.channel(name);
        match self {
            Self::Fair => format!("{channel}:{owner}"),
            _ => channel,
        }
    }
}

/// Our own key beside those of a name. Not in Redisson's braces: `a` and `{a}` are two names.
pub(super) fn ours(name: &Name) -> String {
    format!("{OURS}:{name}")
}

const OURS: &str = "leasehold_redisson";

/// A pattern that our own keys match.
pub(super) fn pattern() -> String {
    format!("{OURS}:*")
}

/// The name that a key of ours is beside; none if it is another key.
pub(super) fn name_of(key: &str) -> Option<Name> {
    let name = key.strip_prefix(OURS)?.strip_prefix(':')?;
    Name::new(name).ok()
}

/// Redisson puts a name in braces unless it has one.
fn tagged(name: &Name) -> String {
    match name.as_str().contains('{') {
        true => name.to_string(),
        false => format!("{{{name}}}"),
    }
}

fn before(word: &str, name: &Name) -> String {
    format!("{word}:{}", tagged(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    #[test]
    fn keys_are_those_of_redisson() {
        let fair = Kind::Fair.keys(&name("a"));
        assert_eq!(fair[0], "a");
        assert_eq!(
            fair[2..],
            [
                "redisson_lock__channel:{a}",
                "redisson_lock_queue:{a}",
                "redisson_lock_timeout:{a}"
            ]
        );
        assert_eq!(
            Kind::Fair.waits_on(&name("a"), "u:1"),
            "redisson_lock__channel:{a}:u:1"
        );
        assert_eq!(
            Kind::ReadWrite.keys(&name("{a}b"))[2..],
            ["redisson_rwlock:{a}b", "{a}b"]
        );
        assert_eq!(
            Kind::Permits.keys(&name("a"))[2..],
            ["redisson_sc:{a}", "{a}:timeout"]
        );
        assert_eq!(Kind::Fenced.keys(&name("a"))[3], "redisson_lock_token:{a}");
    }

    #[test]
    fn names_come_back_from_our_keys() {
        for text in ["a", "{a}", "a{b", "a}", "{{a}}", "x:{y}"] {
            assert_eq!(name_of(&ours(&name(text))), Some(name(text)), "{text}");
        }
        assert_eq!(name_of("redisson_lock__channel:{a}"), None);
        assert_ne!(ours(&name("a")), ours(&name("{a}")));
    }
}
