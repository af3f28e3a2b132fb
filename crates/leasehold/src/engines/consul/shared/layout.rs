//! The keys of Consul's own locks: where they are, their flags, and what `.lock` of a semaphore says.

use std::collections::BTreeSet;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::super::client::kv::Entry;
use crate::name::Name;

/// The flags of a key of `api.Lock`.
pub(super) const LOCK: u64 = 0x2ddc_cbc0_58a5_0c18;
/// The flags of the keys of `api.Semaphore`.
pub(super) const SEMAPHORE: u64 = 0xe0f6_9a2b_aa41_4de0;

/// The key below a name that `consul lock` takes, and that a semaphore keeps its holders in.
pub(super) const DOT_LOCK: &str = ".lock";
/// The line of those of this process that wait for permits: no key has this name, since `%` is followed by two digits there.
pub(super) const QUEUE: &str = "%queue";

/// Where the keys of names are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines::consul) struct Layout {
    /// The start of every key: empty, or with a slash at its end.
    pub(in crate::engines::consul) start: String,
    /// Whether the key of a mutex is the name itself, and not `.lock` below it.
    pub(in crate::engines::consul) bare: bool,
}

impl Layout {
    /// The key of a mutex.
    pub(super) fn mutex(&self, name: &Name) -> String {
        match self.bare {
            true => format!("{}{}", self.start, encode(name)),
            false => format!("{}{DOT_LOCK}", self.dir(name)),
        }
    }

    /// The directory of a semaphore, with its slash.
    pub(super) fn dir(&self, name: &Name) -> String {
        format!("{}{}/", self.start, encode(name))
    }

    /// The name whose lock or semaphore has this key.
    pub(super) fn name(&self, entry: &Entry) -> Option<Name> {
        let below = entry.key.strip_prefix(&self.start)?;
        let dotted = below
            .strip_suffix(DOT_LOCK)
            .and_then(|dir| dir.strip_suffix('/'));
        match entry.flags {
            LOCK if self.bare => decode(below),
            LOCK | SEMAPHORE => decode(dotted?),
            _ => None,
        }
    }
}

/// A name as a part of a key: itself, but for what a path cannot say (`//`, `.` and `..`, a slash at an end) and `%`.
fn encode(name: &Name) -> String {
    let parts: Vec<&str> = name.as_str().split('/').collect();
    let mut key = String::with_capacity(name.as_str().len());
    for (at, part) in parts.iter().enumerate() {
        let empty_beside = part.is_empty() || at > 0 && parts[at - 1].is_empty();
        match at {
            0 => {}
            _ if empty_beside => key.push_str("%2F"),
            _ => key.push('/'),
        }
        match *part {
            "." => key.push_str("%2E"),
            ".." => key.push_str("%2E%2E"),
            part => key.push_str(&part.replace('%', "%25")),
        }
    }
    key
}

fn decode(key: &str) -> Option<Name> {
    let name = percent_decode_str(key).decode_utf8().ok()?;
    Name::new(&*name).ok().filter(|name| encode(name) == key)
}

/// What `.lock` of a semaphore says: the number of permits, and the sessions that have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Holders {
    pub(super) limit: u32,
    pub(super) sessions: BTreeSet<String>,
}

impl Holders {
    /// None if another program wrote something else there.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let said: Value = serde_json::from_slice(value).ok()?;
        let sessions = said["Holders"].as_object().into_iter().flatten();
        let sessions = sessions.filter(|(_, holds)| **holds == Value::Bool(true));
        Some(Self {
            limit: u32::try_from(said["Limit"].as_u64()?).ok()?,
            sessions: sessions.map(|(session, _)| session.clone()).collect(),
        })
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let sessions = self
            .sessions
            .iter()
            .map(|session| (session.clone(), Value::Bool(true)));
        let sessions: serde_json::Map<_, _> = sessions.collect();
        json!({"Limit": self.limit, "Holders": sessions})
            .to_string()
            .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_name_where_a_path_can_say_it() {
        let layout = |bare| Layout {
            start: "s/".to_owned(),
            bare,
        };
        let name = Name::new("service/web:1").unwrap();
        assert_eq!(layout(false).mutex(&name), "s/service/web:1/.lock");
        assert_eq!(layout(true).mutex(&name), "s/service/web:1");
        assert_eq!(layout(false).dir(&name), "s/service/web:1/");
        let all = [
            "a",
            "/a",
            "a/",
            "a//b",
            "a///b",
            "/",
            "//",
            ".",
            "a/../b",
            "%",
            "%2F",
            "a b",
            "á漢🔒",
            "a%2F",
            ".lock",
        ];
        let mut keys = BTreeSet::new();
        for name in all {
            let name = Name::new(name).unwrap();
            let key = encode(&name);
            let odd = key.split('/').any(|part| matches!(part, "" | "." | ".."));
            assert!(!odd, "{key}");
            assert_eq!(decode(&key), Some(name));
            assert!(keys.insert(key));
        }
    }

    #[test]
    fn holders_are_written_as_go_reads_them() {
        let text = br#"{"Limit":2,"Holders":{"a":true,"b":true,"c":false}}"#;
        let holders = Holders::read(text).unwrap();
        assert_eq!((holders.limit, holders.sessions.len()), (2, 2));
        assert_eq!(Holders::read(&holders.write()), Some(holders));
        let none = br#"{"Limit":1,"Holders":null}"#;
        assert!(Holders::read(none).unwrap().sessions.is_empty());
        assert_eq!(Holders::read(b"leader: me"), None);
    }
}
