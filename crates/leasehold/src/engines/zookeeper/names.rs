//! Names of nodes in Curator's layout: kind, order and claim of a node, and the node of a name.

use percent_encoding::percent_decode_str;

use crate::claim::ClaimId;
use crate::engines::ordered::{Kind, Node};
use crate::name::Name;

/// The marker in a node's name, and the kind it stands for. Longer markers first: `lock-` is part of others.
const MARKERS: [(&str, Kind); 6] = [
    ("__READ__", Kind::Read),
    ("__WRIT__", Kind::Write),
    // kazoo's own node names: it ignores ours, so the two would not exclude each other.
    ("__rlock__", Kind::Foreign),
    ("__lock__", Kind::Foreign),
    ("lease-", Kind::Permit),
    ("lock-", Kind::Mutex),
];

/// The room in which a semaphore's claims line up.
pub(super) const LOCKS: &str = "locks";
/// The room of a semaphore's permits.
pub(super) const LEASES: &str = "leases";
/// The room of eviction traces. No name is encoded like this: there `%` is followed by two hexadecimal digits.
pub(super) const EVICTED: &str = "%evicted";

/// A child of a name's node, if it is a claim or a semaphore's room.
pub(super) fn parse(name: &str) -> Option<Node> {
    let (kind, order) = match name {
        LOCKS | LEASES => (Kind::Room, i64::MAX),
        _ => MARKERS.iter().find_map(|(marker, kind)| {
            let digits = &name[name.rfind(marker)? + marker.len()..];
            let sequence = digits.trim_start_matches('-').len() >= 10;
            Some((*kind, digits.parse().ok().filter(|_| sequence)?))
        })?,
    };
    Some(Node {
        name: name.to_owned(),
        kind,
        order,
        claim: claim_of(name),
        weight: 1,
    })
}

/// From here on the next sequences may overflow, and their order is not the order of arrival.
const SEQUENCE_END: i64 = (1 << 31) - (1 << 16);

pub(super) fn is_at_the_end(name: &str) -> bool {
    parse(name).is_none_or(|node| node.order < 0 || node.order >= SEQUENCE_END)
}

/// The claim in Curator's protection prefix.
fn claim_of(name: &str) -> Option<ClaimId> {
    let uuid: String = name.strip_prefix("_c_")?.get(..36)?.replace('-', "");
    u128::from_str_radix(&uuid, 16).ok().map(ClaimId::from_u128)
}

/// The nodes among the children, in their order.
pub(super) fn nodes(children: &[String]) -> Vec<Node> {
    let mut nodes: Vec<_> = children.iter().filter_map(|name| parse(name)).collect();
    nodes.sort_by(|a, b| (a.order, &a.name).cmp(&(b.order, &b.name)));
    nodes
}

/// Curator's protection prefix, with the claim's id as its UUID: every node of the claim begins with it.
pub(super) fn protection(claim: ClaimId) -> String {
    let id = format!("{:032x}", claim.as_u128());
    let (a, b, c) = (&id[..8], &id[8..12], &id[12..16]);
    format!("_c_{a}-{b}-{c}-{}-{}-", &id[16..20], &id[20..])
}

/// The name of a claim's node without its sequence.
pub(super) fn prefix(claim: ClaimId, kind: Kind) -> String {
    let marker = match kind {
        Kind::Read => "__READ__",
        Kind::Write => "__WRIT__",
        Kind::Permit => "lease-",
        Kind::Mutex | Kind::Foreign | Kind::Room => "lock-",
    };
    protection(claim) + marker
}

/// The node of a name: the name itself, so that `stock` is Curator's `stock`, where ZooKeeper allows it.
pub(super) fn encode(name: &Name) -> String {
    let name = name.as_str();
    // `zookeeper` is the server's own tree.
    if matches!(name, "." | ".." | "zookeeper") {
        return name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    }
    let mut node = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '/' | '%' => node.extend(bytes(c)),
            c if forbidden(c) => node.extend(bytes(c)),
            c => node.push(c),
        }
    }
    node
}

fn bytes(c: char) -> impl Iterator<Item = String> {
    let mut room = [0; 4];
    let bytes = c.encode_utf8(&mut room).as_bytes().to_vec();
    bytes.into_iter().map(|byte| format!("%{byte:02X}"))
}

/// The characters that ZooKeeper refuses in a path. Above U+FFFF a Java string has surrogates, which it refuses too.
fn forbidden(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The name that a node stands for, if it does.
pub(super) fn decode(node: &str) -> Option<Name> {
    let name = percent_decode_str(node).decode_utf8().ok()?;
    Name::new(&*name).ok().filter(|name| encode(name) == node)
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::*;

    fn node(name: &str) -> String {
        encode(&Name::new(name).expect("a name"))
    }

    #[test]
    fn names_are_nodes_as_they_are_unless_they_cannot_be() {
        for same in [
            "stock",
            "stock:42",
            "a b",
            "á漢",
            "locks",
            "%2F".trim_start_matches('%'),
        ] {
            assert_eq!(node(same), same);
        }
        assert_eq!(node("a/b"), "a%2Fb");
        assert_eq!(node("100%"), "100%25");
        assert_eq!(node("."), "%2E");
        assert_eq!(node(".."), "%2E%2E");
        assert_ne!(node("zookeeper"), "zookeeper");
        assert_eq!(node("🔒"), "%F0%9F%94%92");
    }

    #[test]
    fn a_node_is_its_name_again_and_nothing_else_is() {
        for name in [
            "stock",
            "a/b",
            "%",
            "%2F",
            "..",
            "zookeeper",
            "🔒",
            "\u{e000}",
            "-lock-",
        ] {
            let name = Name::new(name).unwrap();
            assert_eq!(decode(&encode(&name)), Some(name));
        }
        for other in ["%evicted", "%2f", "%41", "a%2"] {
            assert_eq!(decode(other), None, "{other}");
        }
    }

    #[test]
    fn a_claim_is_found_again_in_the_names_of_its_nodes() {
        let claim = ClaimId::random();
        let read = parse(&(prefix(claim, Kind::Read) + "0000000007")).unwrap();
        assert_eq!((read.kind, read.order), (Kind::Read, 7));
        assert_eq!(read.claim, Some(claim));
        let known = ClaimId::from_u128(0xc5e3_05c6_c2c4_350d_8b0e_08a4_c8a4_2820);
        let name = "_c_c5e305c6-c2c4-350d-8b0e-08a4c8a42820-lock-";
        assert_eq!(prefix(known, Kind::Mutex), name);
    }

    #[test]
    fn sequences_are_numbers_and_other_children_are_no_nodes() {
        let names = [
            "x-lock--2147483648",
            "x-lock-2147483647",
            "leases",
            "x-lock-0000000001",
            "0",
            "note",
            "lock-12",
            "-lock-abcdefghij",
        ];
        let names = names.map(str::to_owned);
        let order: Vec<_> = nodes(&names).iter().map(|node| node.order).collect();
        assert_eq!(order, [-2_147_483_648, 1, 2_147_483_647, i64::MAX]);
        let kazoo = parse("0123__lock__0000000002").unwrap();
        assert_eq!((kazoo.kind, kazoo.claim), (Kind::Foreign, None));
        assert_eq!(parse("0123-lock-0000000001").unwrap().kind, Kind::Mutex);
    }

    #[test]
    fn sequences_near_their_end_are_refused() {
        assert!(!is_at_the_end("x-lock-2147418111"));
        assert!(is_at_the_end("x-lock-2147418112"));
        assert!(is_at_the_end("x-lock--2147483648"));
    }

    /// Whatever a node is called, it is the node of one name or of none; and every name has a node that ZooKeeper allows.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_person_wrote() {
        let fuzz = crate::fuzz::Fuzz {
            name: "node",
            words: &[
                b"_c_",
                b"-lock-",
                b"lease-",
                b"__READ__",
                b"__lock__",
                b"0000000001",
                b"%",
                b"%2F",
                b"/",
                b"..",
                b"zookeeper",
                b"%evicted",
                "é".as_bytes(),
                "\u{e000}".as_bytes(),
                "🔒".as_bytes(),
            ],
        };
        fuzz.run(&[], |input| {
            let text = String::from_utf8_lossy(input);
            let (named, child) = (decode(&text), parse(&text));
            assert!(named.iter().all(|name| encode(name) == *text));
            let name = Name::new(&text).ok();
            if let Some(name) = &name {
                let node = encode(name);
                assert_eq!(decode(&node).as_ref(), Some(name));
                assert!(!node.contains('/') && !node.contains(forbidden));
                assert!(
                    !matches!(&*node, "." | ".." | "zookeeper" | EVICTED),
                    "{node}"
                );
            }
            let kind = child
                .as_ref()
                .map(|node| std::mem::discriminant(&node.kind));
            let claim = child.is_some_and(|node| node.claim.is_some());
            (
                named.is_some(),
                name.is_some(),
                kind,
                claim,
                is_at_the_end(&text),
            )
        });
    }
}
