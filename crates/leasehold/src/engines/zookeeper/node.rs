//! Names of nodes: what they say of kind, order and claim.

use percent_encoding::percent_decode_str;

use crate::claim::ClaimId;
use crate::engine::Mode;
use crate::name::Name;

/// What a contender's node name says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Mutex,
    Read,
    Write,
    Lease,
    /// kazoo's own names: it ignores ours, so nobody would be excluded.
    Kazoo,
}

/// Longer markers first: a name is what its most telling marker says.
const MARKERS: [(&str, Kind); 6] = [
    ("__READ__", Kind::Read),
    ("__WRIT__", Kind::Write),
    ("__rlock__", Kind::Kazoo),
    ("__lock__", Kind::Kazoo),
    ("lease-", Kind::Lease),
    ("lock-", Kind::Mutex),
];

/// The node a semaphore's claims line up below.
pub(super) const LOCKS: &str = "locks";
/// The node a semaphore's permits are below.
pub(super) const LEASES: &str = "leases";
/// Who evicted whom, and why. No name is encoded like this: `%` is followed by two hexadecimal digits there.
pub(super) const EVICTED: &str = "%evicted";

/// What Curator writes into a node to ask its owner to give up.
pub(super) const REVOKE: &[u8] = b"__REVOKE__";

/// One contender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) sequence: i64,
}

impl Node {
    /// None for a child that is no contender.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (kind, sequence) = MARKERS.iter().find_map(|(marker, kind)| {
            let digits = &name[name.rfind(marker)? + marker.len()..];
            let shown = digits.trim_start_matches('-').len() >= 10;
            Some((*kind, digits.parse().ok().filter(|_| shown)?))
        })?;
        let name = name.to_owned();
        Some(Self {
            name,
            kind,
            sequence,
        })
    }

    /// The claim it belongs to, if its name begins with one.
    pub(super) fn claim(&self) -> Option<ClaimId> {
        let uuid: String = self.name.strip_prefix("_c_")?.get(..36)?.replace('-', "");
        u128::from_str_radix(&uuid, 16).ok().map(ClaimId::from_u128)
    }
}

/// The contenders among the children, in order. A writer and the reader it became have one sequence.
pub(super) fn contenders<'a>(children: impl IntoIterator<Item = &'a String>) -> Vec<Node> {
    let nodes = children.into_iter().filter_map(|name| Node::parse(name));
    let mut nodes: Vec<_> = nodes.collect();
    nodes.sort_by(|a, b| {
        let reader = |node: &Node| node.kind == Kind::Read;
        (a.sequence, reader(a), &a.name).cmp(&(b.sequence, reader(b), &b.name))
    });
    nodes
}

/// What the names of a claim's nodes begin with. Curator's protection prefix, with the claim's id as its UUID.
pub(super) fn prefix(claim: ClaimId, marker: &str) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    /// Where the digits of each byte are.
    const PLACES: [usize; 16] = [3, 5, 7, 9, 12, 14, 17, 19, 22, 24, 27, 29, 31, 33, 35, 37];
    // By hand, because every claim needs one: formatting takes ten times as long.
    let mut text = *b"_c_xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx-";
    for (at, byte) in PLACES.into_iter().zip(claim.as_u128().to_be_bytes()) {
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
    }
    let text = std::str::from_utf8(&text).expect("digits are text");
    [text, marker].concat()
}

/// The marker of a claim's node in its line.
pub(super) const fn marker(mode: Mode) -> &'static str {
    match mode {
        Mode::Mutex | Mode::Permits { .. } => "lock-",
        Mode::Read => "__READ__",
        Mode::Write => "__WRIT__",
    }
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

/// What ZooKeeper takes for no character. Its strings are UTF-16, where whatever is above U+FFFF is two surrogates.
fn forbidden(c: char) -> bool {
    matches!(c, '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The name of a node, if it stands for one.
pub(super) fn decode(node: &str) -> Option<Name> {
    let name = percent_decode_str(node).decode_utf8().ok()?;
    Name::new(&*name).ok().filter(|name| encode(name) == node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> String {
        encode(&Name::new(name).unwrap())
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
        let name = prefix(claim, "__READ__") + "0000000007";
        let read = Node::parse(&name).unwrap();
        assert_eq!((read.kind, read.sequence), (Kind::Read, 7));
        assert_eq!(read.claim(), Some(claim));
        let known = ClaimId::from_u128(0xc5e3_05c6_c2c4_350d_8b0e_08a4_c8a4_2820);
        let name = "_c_c5e305c6-c2c4-350d-8b0e-08a4c8a42820-lock-";
        assert_eq!(prefix(known, "lock-"), name);
    }

    #[test]
    fn sequences_are_numbers() {
        let names = [
            "x-lock--2147483648",
            "x-lock-2147483647",
            "x-lock-0000000001",
        ];
        let names = names.map(str::to_owned);
        let order: Vec<_> = contenders(&names).iter().map(|n| n.sequence).collect();
        assert_eq!(order, [-2_147_483_648, 1, 2_147_483_647]);
    }
}
