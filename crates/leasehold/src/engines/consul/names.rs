//! Keys of the own layout: the key of a name, and the kind, order and claim of what is below it.

use percent_encoding::percent_decode_str;

use super::client::kv::Entry;
use crate::claim::ClaimId;
use crate::engines::ordered::{Kind, Node};
use crate::name::Name;

/// The claims of mutexes and read/write locks, in order of arrival.
pub(super) const LINE: &str = "line/";
/// The claims of semaphores that wait for permits, in order of arrival.
pub(super) const QUEUE: &str = "queue/";
/// The claims that have permits, or take them.
pub(super) const PERMITS: &str = "permits/";
/// What was written of evictions. No name is encoded like this: there `%` is followed by two digits.
pub(super) const EVICTED: &str = "%evicted/";
/// One key for each session, whose changes void its requests that are under way.
pub(super) const GATES: &str = "%gates/";

/// How many prefixes the names are spread over. One request waits for changes of a whole prefix: its answer has every
/// key there, so there are several; and a process has at most one such request for each, so there are few.
const SHARDS: u32 = 16;

/// The upper half of the flags of our keys: a key with others is none of ours.
const MARK: u64 = 0x6c68_0001 << 32;
const COUNT: u64 = 0xff_ffff;

/// The flags that say what a key stands for, and for how many permits.
pub(super) fn flags(kind: Kind, count: u32) -> u64 {
    let kind: u64 = match kind {
        Kind::Read => 1,
        Kind::Write => 2,
        Kind::Permit => 3,
        Kind::Mutex | Kind::Foreign | Kind::Room => 0,
    };
    MARK | kind << 24 | u64::from(count) & COUNT
}

/// The most permits that flags can say.
pub(super) const MOST: u32 = COUNT as u32;

/// The node that a key of this room stands for. A key without a session is no claim: claims end with theirs.
pub(super) fn node(room: &str, entry: &Entry) -> Option<Node> {
    let name = entry.key.strip_prefix(room)?;
    if entry.session.is_empty() || entry.flags >> 32 != MARK >> 32 {
        return None;
    }
    let kind = match entry.flags >> 24 & 0xff {
        0 => Kind::Mutex,
        1 => Kind::Read,
        2 => Kind::Write,
        3 => Kind::Permit,
        _ => return None,
    };
    Some(Node {
        name: name.to_owned(),
        kind,
        order: i64::try_from(entry.created).ok()?,
        claim: Some(ClaimId::from_u128(u128::from_str_radix(name, 16).ok()?)),
        weight: u32::try_from(entry.flags & COUNT).ok()?.max(1),
    })
}

/// The key of a claim, below its room.
pub(super) fn node_name(claim: ClaimId) -> String {
    format!("{:032x}", claim.as_u128())
}

/// Where the keys of a name are, below the prefix, with a slash at its end.
pub(super) fn directory(name: &Name) -> String {
    let name = encode(name);
    // FNV-1a, and the better bits of it: the layout is the same for every version of this program.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let shard = (hash ^ hash >> 16) % SHARDS;
    format!("{shard:x}/{name}/")
}

/// The shard of a directory, with its slash.
pub(super) fn shard(directory: &str) -> &str {
    directory.split_inclusive('/').next().unwrap_or("")
}

/// A name as one part of a key.
pub(super) fn encode(name: &Name) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:.~@+=".contains(&byte);
    // Agents clean paths: `.` and `..` would be gone.
    let dots = matches!(name.as_str(), "." | "..");
    let mut part = String::with_capacity(name.as_str().len());
    for byte in name.as_str().bytes() {
        match plain(byte) && !dots {
            true => part.push(char::from(byte)),
            false => part.push_str(&format!("%{byte:02X}")),
        }
    }
    part
}

/// The name that a part of a key stands for, if it does.
pub(super) fn decode(part: &str) -> Option<Name> {
    let name = percent_decode_str(part).decode_utf8().ok()?;
    Name::new(&*name).ok().filter(|name| encode(name) == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_its_name_again_and_nothing_else_is() {
        let names = [
            "stock:42",
            "a/b",
            "%",
            "%2F",
            ".",
            "..",
            "á漢🔒",
            "a b",
            "a?b#c",
        ];
        for name in names {
            let name = Name::new(name).unwrap();
            let part = encode(&name);
            assert!(part.is_ascii() && !part.contains('/'), "{part}");
            assert_eq!(decode(&part), Some(name));
        }
        assert_eq!(encode(&Name::new("stock:42").unwrap()), "stock:42");
        for other in ["%evicted", "%2f", "%41", "a%2", ".."] {
            assert_eq!(decode(other), None, "{other}");
        }
    }

    #[test]
    fn names_are_spread_over_all_shards_and_stay_where_they_are() {
        let of = |name: String| directory(&Name::new(&name).unwrap());
        let all: std::collections::HashSet<_> = (0..500)
            .map(|number| shard(&of(format!("stock:{number}"))).to_owned())
            .collect();
        assert_eq!(all.len(), SHARDS as usize);
        assert_eq!(of("stock:42".to_owned()), "d/stock:42/");
    }

    #[test]
    fn flags_say_what_a_key_stands_for() {
        let claim = ClaimId::random();
        let mut entry = Entry {
            key: format!("r/{}", node_name(claim)),
            value: Vec::new(),
            flags: flags(Kind::Permit, 300),
            session: "s".to_owned(),
            created: 7,
            modified: 9,
        };
        let node = |entry: &Entry| super::node("r/", entry);
        let found = node(&entry).unwrap();
        assert_eq!((found.kind, found.weight), (Kind::Permit, 300));
        assert_eq!((found.order, found.claim), (7, Some(claim)));
        for kind in [Kind::Mutex, Kind::Read, Kind::Write] {
            entry.flags = flags(kind, 1);
            assert_eq!(node(&entry).unwrap().kind, kind);
        }
        entry.session.clear();
        assert_eq!(node(&entry), None);
        entry.session.push('s');
        entry.flags = 7;
        assert_eq!(node(&entry), None);
    }
}
