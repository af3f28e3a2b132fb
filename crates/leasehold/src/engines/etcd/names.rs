//! Keys: the rooms of a name, and what the key of a claim says.
//!
//! etcd's concurrency package keeps the claims of a mutex below `NAME/`, a key for each session (`NAME/LEASE`, in
//! hexadecimal), and orders by create revision whatever the rest of the key is. Ours is
//! `NAME/LEASE-KIND-CLAIM`, so that one session can have several claims on a name.

use percent_encoding::percent_decode_str;

use super::client::proto::KeyValue;
use crate::claim::{Claim, ClaimId, Mode};
use crate::engines::ordered::{Kind, New, Node, Rooms};
use crate::name::Name;

/// The room in which a semaphore's claims line up, below its name. No name is encoded like this: there `%` is followed
/// by two hexadecimal digits.
pub(super) const LINE: &str = "%line";
/// The room of a semaphore's permits.
pub(super) const PERMITS: &str = "%permits";
/// The room of eviction traces.
pub(super) const EVICTED: &str = "%evicted";
/// The room of the keys that stand for sessions.
pub(super) const SESSIONS: &str = "%sessions";

/// The key of a name below the prefix: the name itself, so that `stock` is the `stock` of `etcdctl lock`. A `/` would make
/// it a neighbour below another name.
pub(super) fn encode(name: &Name) -> String {
    name.as_str().replace('%', "%25").replace('/', "%2F")
}

/// The name that a part of a key stands for, if it does.
pub(super) fn decode(part: &str) -> Option<Name> {
    let name = percent_decode_str(part).decode_utf8().ok()?;
    Name::new(&*name).ok().filter(|name| encode(name) == part)
}

/// Where the claims on a name are: keys that begin with this.
pub(super) fn rooms(prefix: &str, name: &Name, mode: Mode) -> Rooms {
    let base = format!("{prefix}{}/", encode(name));
    match mode {
        Mode::Permits { .. } => Rooms {
            line: format!("{base}{LINE}/"),
            permits: Some(format!("{base}{PERMITS}/")),
        },
        _ => Rooms {
            line: base,
            permits: None,
        },
    }
}

/// The first key after those that begin with this.
pub(super) fn end(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    // All keys.
    vec![0]
}

/// The key of a claim, below its room.
pub(super) fn key(lease: i64, new: &New<'_>, weight: u32) -> String {
    let (claim, kind) = (new.claim.as_u128(), new.kind);
    match kind {
        Kind::Read => format!("{lease:x}-read-{claim:032x}"),
        Kind::Write => format!("{lease:x}-write-{claim:032x}"),
        Kind::Permit => format!("{lease:x}-permits-{claim:032x}-{weight}"),
        Kind::Mutex | Kind::Foreign | Kind::Room => format!("{lease:x}-lock-{claim:032x}"),
    }
}

/// The key of the reader that a writer becomes: it names the writer's revision, which is its place.
pub(super) fn downgraded(lease: i64, claim: ClaimId, place: i64) -> String {
    format!("{lease:x}-read-{:032x}-{place}", claim.as_u128())
}

/// The name of a node: its key below the room, and the revision that made it, so that a key which another session makes
/// again is another node.
pub(super) fn node_name(key: &str, created: i64) -> String {
    format!("{key}@{created}")
}

/// The key and the revision in the name of a node.
pub(super) fn split(node: &str) -> (&str, i64) {
    let (key, created) = node.rsplit_once('@').unwrap_or((node, ""));
    (key, created.parse().unwrap_or(-1))
}

/// What a key below a room stands for; none if it is not a claim's. Keys deeper below, of names behind another prefix for
/// example, are not.
pub(super) fn parse(room: &str, found: &KeyValue) -> Option<Node> {
    let key = std::str::from_utf8(&found.key).ok()?.strip_prefix(room)?;
    let created = found.create_revision;
    let node = |kind, order, claim, weight| Node {
        name: node_name(key, created),
        kind,
        order,
        claim,
        weight,
    };
    if let Some((first, rest)) = key.split_once('/') {
        return match first {
            LINE | PERMITS => Some(node(Kind::Room, i64::MAX, None, 1)),
            // Go's experimental RWMutex; it and a mutex do not exclude each other.
            "read" | "write" if rest.parse::<u64>().is_ok() => {
                Some(node(Kind::Foreign, created, None, 1))
            }
            _ => None,
        };
    }
    let mut parts = key.split('-');
    let lease = i64::from_str_radix(parts.next()?, 16).ok();
    if lease.is_none_or(|lease| lease != found.lease || lease == 0) {
        return None;
    }
    let Some(kind) = parts.next() else {
        return Some(node(Kind::Mutex, created, None, 1));
    };
    let claim = u128::from_str_radix(parts.next()?, 16).ok()?;
    let (claim, more) = (Some(ClaimId::from_u128(claim)), parts.next());
    match (kind, more) {
        ("lock", None) => Some(node(Kind::Mutex, created, claim, 1)),
        ("write", None) => Some(node(Kind::Write, created, claim, 1)),
        ("read", None) => Some(node(Kind::Read, created, claim, 1)),
        ("read", Some(place)) => {
            // A place that is not older than the key is not believed.
            let place = place
                .parse()
                .ok()
                .filter(|place| (1..created).contains(place));
            Some(node(Kind::Read, place.unwrap_or(created), claim, 1))
        }
        ("permits", Some(weight)) => Some(node(Kind::Permit, created, claim, weight.parse().ok()?)),
        _ => None,
    }
}

/// The nodes among the keys of a room, in their order.
pub(super) fn nodes(room: &str, found: &[KeyValue]) -> Vec<Node> {
    let mut nodes: Vec<_> = found.iter().filter_map(|one| parse(room, one)).collect();
    nodes.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
    nodes
}

/// The room of mutexes that a key is below, and the room's name.
pub(super) fn room_of(prefix: &str, key: &[u8]) -> Option<(String, Name)> {
    let key = std::str::from_utf8(key).ok()?.strip_prefix(prefix)?;
    let (part, _) = key.split_once('/')?;
    Some((format!("{prefix}{part}/"), decode(part)?))
}

/// The room in which a claim of another kind would be, for a claim of this one.
pub(super) fn base(prefix: &str, claim: &Claim) -> String {
    rooms(prefix, &claim.name, Mode::Mutex).line
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).expect("a name")
    }

    fn found(key: &str, lease: i64) -> KeyValue {
        KeyValue {
            key: key.into(),
            create_revision: 9,
            lease,
            ..KeyValue::default()
        }
    }

    #[test]
    fn a_name_is_one_part_of_a_key_and_its_name_again() {
        assert_eq!(encode(&name("stock:42")), "stock:42");
        assert_eq!(encode(&name("a/b")), "a%2Fb");
        for text in ["a", "a/b", "%", "%2F", "%line", "read", "á 漢"] {
            let name = name(text);
            assert!(!encode(&name).contains('/'));
            assert_eq!(decode(&encode(&name)), Some(name));
        }
        for other in ["%evicted", "%2f", "%41", "a/b"] {
            assert_eq!(decode(other), None, "{other}");
        }
    }

    #[test]
    fn the_end_of_a_room_is_after_all_of_its_keys() {
        assert_eq!(end(b"a/"), b"a0");
        assert_eq!(end(&[b'a', 0xff]), b"b");
        assert_eq!(end(&[0xff]), [0]);
        assert_eq!(end(b""), [0]);
    }

    #[test]
    fn a_key_of_ours_says_what_it_stands_for() {
        let claim = ClaimId::from_u128(7);
        let of = |key: &str| parse("a/", &found(&format!("a/{key}"), 0xcd)).unwrap();
        for kind in [Kind::Mutex, Kind::Read, Kind::Write, Kind::Permit] {
            let data = &b""[..];
            let new = New {
                claim,
                kind,
                data,
                waits: true,
            };
            let node = of(&key(0xcd, &new, 3));
            assert_eq!((node.kind, node.claim, node.order), (kind, Some(claim), 9));
            assert_eq!(node.weight, if kind == Kind::Permit { 3 } else { 1 });
            assert_eq!(split(&node.name), (&*key(0xcd, &new, 3), 9));
        }
        assert_eq!(of(&downgraded(0xcd, claim, 4)).order, 4);
        assert_eq!(of(&downgraded(0xcd, claim, 40)).order, 9);
    }

    #[test]
    fn keys_of_others_are_locks_or_nothing() {
        let of = |key: &str| parse("a/", &found(key, 0xcd)).map(|node| node.kind);
        assert_eq!(of("a/cd"), Some(Kind::Mutex));
        assert_eq!(of("a/read/1700000000"), Some(Kind::Foreign));
        assert_eq!(of("a/%permits/cd-permits-1-2"), Some(Kind::Room));
        for other in ["a/ce", "a/b/cd", "a/config", "b/cd", "a/cd-x-1", "a/"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(parse("a/", &found("a/0", 0)), None);
    }

    /// Every answer of a member, or of what pretends to be one, and every key and value below the prefix is understood,
    /// refused or left out.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_member_wrote() {
        use crate::engines::etcd::client::proto::{RangeResponse, TxnResponse, WatchResponse};
        use crate::engines::etcd::{server::unpack, txn::ranges};
        use crate::engines::ordered::data::{Note, Trace};
        use prost::Message as _;
        let fuzz = crate::fuzz::Fuzz {
            name: "etcd",
            words: &[
                b"p/x/9-lock-1",
                b"p/x/9-read-1-3",
                b"p/x/9-permits-1-2",
                b"p/x/%line/",
                b"leasehold/1 1 1 10000 0 1 h c",
                b"\x12\x0e",
                b"\x0a\x0c",
                b"\x28\x09",
                b"\x10\x05",
                b"\n1500",
                b"%2F",
                b"-",
                b"/",
            ],
        };
        fuzz.run(&[], |input| {
            let range = RangeResponse::decode(input);
            let txn = TxnResponse::decode(input);
            let watch = WatchResponse::decode(input);
            let found = KeyValue {
                key: input.to_vec(),
                create_revision: 9,
                lease: 9,
                ..KeyValue::default()
            };
            let kind = |found: &KeyValue| parse("p/x/", found).map(|node| node.kind);
            let all = range.as_ref().map_or(&[][..], |range| &range.kvs);
            let (data, since) = unpack(input);
            (
                nodes("p/x/", all).len().min(3),
                all.first().and_then(kind),
                txn.as_ref().map(|txn| ranges(txn).len().min(3)).ok(),
                watch.map(|watch| format!("{watch:?}").len() / 64).ok(),
                kind(&found),
                room_of("p/", input).is_some(),
                (
                    since.is_some(),
                    Note::read(data).is_some(),
                    Trace::read(input).is_some(),
                ),
            )
        });
    }
}
