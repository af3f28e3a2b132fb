//! How names, slots and channels are written.

use crate::claim::{ClaimId, SessionId};
use crate::name::Name;

/// How many hash tags there are. A heartbeat in a cluster is one call per tag, so there are few; and enough to spread
/// over the servers.
pub(super) const BUCKETS: u16 = 128;

/// One of the hash tags that names are spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Bucket(u16);

impl Bucket {
    pub(super) fn of(name: &Name) -> Self {
        Self(crc16(name.as_str().as_bytes()) % BUCKETS)
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..BUCKETS).map(Self)
    }

    /// The slot of every key of this bucket.
    pub(super) fn slot(self) -> u16 {
        slot(format!("{:02x}", self.0).as_bytes())
    }
}

/// The keys and channels below one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys {
    /// Without braces: the first brace of a key opens its hash tag.
    pub(super) prefix: String,
}

impl Keys {
    /// The keys of a name's line, as the script is given them: the line, the claims in order, the claims by deadline.
    pub(super) fn of(&self, name: &Name) -> [String; 3] {
        [':', 'w', 'd'].map(|kind| self.key(kind, name))
    }

    /// The first key of a name's line.
    pub(super) fn line(&self, name: &Name) -> String {
        self.key(':', name)
    }

    /// The key of the value that is stored under a name.
    pub(super) fn value(&self, name: &Name) -> String {
        self.key('s', name)
    }

    /// The bucket of a name is in the first braces, so that braces in the name mean nothing.
    fn key(&self, kind: char, name: &Name) -> String {
        let mut key =
            String::with_capacity(self.prefix.len() + "{bb}:".len() + name.as_str().len());
        key.push_str(&self.prefix);
        key.push('{');
        let [high, low] = hex::<2>(Bucket::of(name).0.into());
        key.push(high.into());
        key.push(low.into());
        key.push('}');
        key.push(kind);
        key.push_str(name.as_str());
        key
    }

    /// The name of a line's key; none if it is another key.
    pub(super) fn name(&self, key: &str) -> Option<Name> {
        let rest = key.strip_prefix(self.prefix.as_str())?.strip_prefix('{')?;
        let name = Name::new(rest.get(2..)?.strip_prefix("}:")?).ok()?;
        (self.line(&name) == key).then_some(name)
    }

    /// A pattern that the keys of all lines match.
    pub(super) fn pattern(&self) -> String {
        let escaped = self.prefix.chars().flat_map(|c| {
            let special = matches!(c, '*' | '?' | '[' | ']' | '\\');
            special.then_some('\\').into_iter().chain([c])
        });
        format!("{}{{??}}:*", escaped.collect::<String>())
    }

    /// Where one process listens.
    pub(super) fn channel(&self, mailbox: &str) -> String {
        format!("{}!{mailbox}", self.prefix)
    }

    /// Where one process listens for one bucket, on the server that has it.
    pub(super) fn sharded(&self, bucket: Bucket, mailbox: &str) -> String {
        format!("{}{{{:02x}}}!{mailbox}", self.prefix, bucket.0)
    }

    /// Where evictions are noted.
    pub(super) fn evictions(&self) -> String {
        format!("{}evictions", self.prefix)
    }
}

#[cfg(feature = "redlock")]
pub(super) fn claim_text(id: ClaimId) -> String {
    format!("{:032x}", id.as_u128())
}

/// The last hexadecimal digits of a number. Not by `format!`: this is done for every call.
pub(super) fn hex<const DIGITS: usize>(number: u128) -> [u8; DIGITS] {
    let mut digits = [0; DIGITS];
    for (at, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * at)) as usize & 15];
    }
    digits
}

pub(super) fn claim_id(text: &str) -> Option<ClaimId> {
    u128::from_str_radix(text, 16).ok().map(ClaimId::from_u128)
}

/// A session as claims name it: the mailbox of its process, and itself.
pub(super) fn session_text(mailbox: &str, id: SessionId) -> String {
    format!("{mailbox}.{:032x}", id.as_u128())
}

pub(super) fn session_id(text: &str) -> Option<SessionId> {
    let (_, id) = text.split_once('.')?;
    u128::from_str_radix(id, 16).ok().map(SessionId::from_u128)
}

/// The slot of a key, as every Redis Cluster computes it.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let length = key[open + 1..].iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &key[open + 1..open + 1 + length])
    });
    crc16(tag.unwrap_or(key)) % 16384
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (crc << 8) ^ CRC16[usize::from((crc >> 8) as u8 ^ byte)]
    })
}

/// The remainder of every byte.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() << 3 {
        let (byte, bit) = (at >> 3, at & 7);
        let crc = if bit == 0 {
            (byte as u16) << 8
        } else {
            table[byte]
        };
        table[byte] = (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 };
        at += 1;
    }
    table
};

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"{user1000}.following"), slot(b"{user1000}.followers"));
        assert_eq!(slot(b"foo"), 12182);
        assert_eq!(slot(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16384);
        for bucket in Bucket::all() {
            let keys = Keys {
                prefix: "lh:".into(),
            };
            assert_eq!(slot(keys.sharded(bucket, "s1").as_bytes()), bucket.slot());
        }
    }

    #[test]
    fn every_name_comes_back_from_its_key() {
        let keys = Keys {
            prefix: "l[h]*:".into(),
        };
        assert_eq!(keys.pattern(), r"l\[h\]\*:{??}:*");
        for name in ["x", "{x}", "}{", "a:b", "é", "{00}:x", "h", ":"] {
            let name = Name::new(name).unwrap();
            let key = keys.line(&name);
            assert_eq!(keys.name(&key), Some(name.clone()), "{key}");
            assert_eq!(slot(key.as_bytes()), Bucket::of(&name).slot(), "{key}");
        }
        for other in ["x", "l[h]*:{00}:x", "l[h]*:evictions", "l[h]*:{zz}:"] {
            assert_eq!(keys.name(other), None, "{other}");
        }
    }

    /// Whatever a key is called, it is the key of one name or of none; and every name has a key.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_person_wrote() {
        let fuzz = crate::fuzz::Fuzz {
            name: "key",
            words: &[b"lh:", b"{", b"}", b"}:", b"{00}:", "é".as_bytes()],
        };
        let keys = Keys {
            prefix: "lh:".into(),
        };
        fuzz.run(&[], |input| {
            let text = String::from_utf8_lossy(input);
            let named = keys.name(&text);
            assert!(named.iter().all(|name| keys.line(name) == *text));
            let name = Name::new(&text).ok();
            if let Some(name) = &name {
                let key = keys.line(name);
                assert_eq!(keys.name(&key).as_ref(), Some(name));
                assert_eq!(slot(key.as_bytes()), Bucket::of(name).slot());
            }
            let slot = slot(input);
            assert!(slot < 16384);
            (
                named.is_some(),
                name.is_some(),
                claim_id(&text).is_some(),
                session_id(&text).is_some(),
                input.len().min(90) / 4,
            )
        });
    }
}
