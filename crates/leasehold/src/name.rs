//! Names of locks.

use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use crate::error::{Error, ErrorKind, Step};

/// The longest name, in bytes.
pub const NAME_MAX: usize = 512;

/// The name of a lock: an opaque string of 1 to 512 bytes without control characters.
///
/// Two names are the same lock only if they are the same bytes: case and Unicode normal form matter, and no
/// character has a meaning. Every engine encodes names injectively.
///
/// ```
/// use leasehold::Name;
///
/// assert_eq!(Name::new("stock:42")?.as_str(), "stock:42");
/// assert_ne!(Name::new("Stock:42")?, Name::new("stock:42")?);
/// assert!(Name::new("").is_err());
/// assert!(Name::new("two\nlines").is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    text: Arc<str>,
    /// Made once: a name is looked up several times for each lock.
    hash: u64,
}

/// Random in each process, so that no caller can choose names that collide.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Name {
    /// Checks a string and makes it a name.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the string is empty, longer than 512 bytes or has a control character.
    ///
    /// ```
    /// let error = leasehold::Name::new("x".repeat(513)).unwrap_err();
    /// assert!(error.to_string().contains("at most 512"));
    /// ```
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        let refuse = |what: String| Err(Error::new(ErrorKind::Invalid, Step::Name, what));
        if name.is_empty() {
            return refuse("the name is empty; a name has 1 to 512 bytes".into());
        }
        if name.len() > NAME_MAX {
            return refuse(format!(
                "the name has {} bytes; a name has at most {NAME_MAX}: lock a digest of it instead",
                name.len()
            ));
        }
        if let Some((at, bad)) = name.char_indices().find(|(_, c)| c.is_control()) {
            return refuse(format!(
                "the name has the control character U+{:04X} at byte {at}; names have none",
                bad as u32
            ));
        }
        Ok(Self {
            text: name.into(),
            hash: HASHES.hash_one(name),
        })
    }

    /// The name as it was given.
    ///
    /// ```
    /// assert_eq!(leasehold::Name::new("a/b")?.as_str(), "a/b");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

impl TryFrom<&str> for Name {
    type Error = Error;
    fn try_from(name: &str) -> Result<Self, Error> {
        Self::new(name)
    }
}

impl TryFrom<String> for Name {
    type Error = Error;
    fn try_from(name: String) -> Result<Self, Error> {
        Self::new(name)
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn limits_are_exact() {
        assert!(Name::new("x".repeat(512)).is_ok());
        assert!(Name::new("é".repeat(256)).is_ok());
        for (bad, hint) in [
            (String::new(), "empty"),
            ("x".repeat(513), "513 bytes"),
            ("é".repeat(257), "514 bytes"),
            ("a\0b".into(), "U+0000 at byte 1"),
            ("\u{9f}".into(), "U+009F"),
            ("tab\t".into(), "U+0009"),
        ] {
            let error = Name::new(&bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(hint), "{error}");
        }
    }

    /// Whatever the text is, it is refused, or is the name as it was given.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_person_wrote() {
        let fuzz = crate::fuzz::Fuzz {
            name: "name",
            words: &[
                b"\0",
                b"\x7f",
                "\u{9f}".as_bytes(),
                "é".as_bytes(),
                "🔒".as_bytes(),
            ],
        };
        fuzz.run(&["x".repeat(512).into_bytes()], |input| {
            let text = String::from_utf8_lossy(input);
            let name = Name::new(&text);
            let good = (1..=512).contains(&text.len()) && !text.contains(char::is_control);
            assert_eq!(name.is_ok(), good, "{text:?}");
            assert!(name.is_err() || name.is_ok_and(|name| name.as_str() == text));
            (good, text.len().min(600) / 8)
        });
    }
}
