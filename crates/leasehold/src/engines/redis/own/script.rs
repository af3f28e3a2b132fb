//! The script: how it is called.

use super::super::client::{Call, Reply};
use super::super::error::Trouble;
use super::super::keys::{Keys, hex};
use super::answer::{SECOND, Since};
use crate::claim::Claim;
use crate::clock::micros;
use crate::fence::{FENCE_BLOCK, Fence};
use crate::name::Name;

/// The rule of a line, as the server runs it: the common part first.
pub(super) const TEXT: &str = concat!(
    include_str!("alone.lua"),
    "\n",
    include_str!("store.lua"),
    "\n",
    include_str!("line.lua")
);

/// One operation of the script on some lines.
#[derive(Debug, Clone)]
pub(super) struct Run {
    what: &'static str,
    /// Comes back with the answer, so that it is never taken for that of another call.
    mark: [u8; 8],
    lines: usize,
    /// The first key of the first line.
    key: String,
    /// How many keys, and the keys.
    keys: Call,
    /// The words behind the keys.
    words: Call,
}

impl Run {
    fn new<'a>(
        what: &'static str,
        keys: &Keys,
        names: impl ExactSizeIterator<Item = &'a Name>,
    ) -> Self {
        let mut run = Self {
            what,
            mark: hex(rand::random::<u32>().into()),
            lines: names.len(),
            key: String::new(),
            keys: Call::with_room(names.len() * 128),
            words: Call::with_room(256),
        };
        run.keys.push_number(names.len() as u64 * 3);
        for name in names {
            let [line, order, deadlines] = keys.of(name);
            for key in [&line, &order, &deadlines] {
                run.keys.push(key.as_bytes());
            }
            if run.key.is_empty() {
                run.key = line;
            }
        }
        run.words.push(what.as_bytes());
        run.words.push(&run.mark);
        run
    }

    /// The same run with the first key of its line alone, for a slot that moves to another server: a server refuses a
    /// call that names a key which is not there. The script answers `TRYAGAIN` if it needs the others. None for several
    /// lines.
    pub(super) fn narrow(&self) -> Option<Self> {
        (self.lines == 1).then(|| Self {
            keys: Call::default().arg("1").arg(&self.key),
            ..self.clone()
        })
    }

    fn one(what: &'static str, keys: &Keys, name: &Name) -> Self {
        Self::new(what, keys, std::iter::once(name))
    }

    pub(super) fn claim(keys: &Keys, claim: &Claim, session: &str, who: &str) -> Self {
        let fits = (1..=claim.mode.capacity()).contains(&claim.mode.weight());
        let what = match (fits, claim.waits) {
            (true, true) => "claim",
            (true, false) => "try",
            (false, _) => "ask",
        };
        let lease = lease(claim);
        let mut run = Self::one(what, keys, &claim.name);
        run.words.push(&asked(claim, lease, session, who));
        run.words.push_number(kept(lease));
        run
    }

    /// The release of a claim that was alone when it was granted.
    pub(super) fn free(keys: &Keys, claim: &Claim, since: Since, used: u32) -> Self {
        let Since(since) = since;
        let mut run = Self::one("free", keys, &claim.name);
        let mut begin = format!("{} {} ", since / SECOND, since % SECOND).into_bytes();
        begin.extend_from_slice(&id_text(claim));
        run.words.push(&begin);
        let spent = since + u64::from(used.clamp(1, FENCE_BLOCK));
        let numbers = [spent, since + lease(claim)].map(|micros| (micros as f64).to_le_bytes());
        run.words.push(numbers.as_flattened());
        run
    }

    pub(super) fn beat(keys: &Keys, claims: &[&Claim]) -> Self {
        let mut run = Self::new("beat", keys, claims.iter().map(|claim| &claim.name));
        for claim in claims {
            run.words.push(&id_text(claim));
        }
        run
    }

    pub(super) fn release(keys: &Keys, claims: &[&Claim], used: u32) -> Self {
        let mut run = Self::new("release", keys, claims.iter().map(|claim| &claim.name));
        for claim in claims {
            run.words.push(&id_text(claim));
            run.words.push_number(used.into());
        }
        run
    }

    pub(super) fn evict(keys: &Keys, name: &Name, fence: Option<Fence>, told: &str) -> Self {
        let mut run = Self::one("evict", keys, name);
        run.words.push_number(fence.map_or(0, Fence::get));
        run.words.push(told.as_bytes());
        run
    }

    /// A page of the claims of a line: those that arrived after this one.
    pub(super) fn look(keys: &Keys, name: &Name, after: u64) -> Self {
        let mut run = Self::one("look", keys, name);
        run.words.push_number(after);
        run
    }

    /// Whether the answer can be that a claim holds.
    pub(super) fn may_grant(&self) -> bool {
        matches!(self.what, "claim" | "try" | "beat")
    }

    /// Whether the same answer comes if it is asked again.
    pub(super) fn may_repeat(&self) -> bool {
        matches!(self.what, "claim" | "try" | "ask" | "look")
    }

    /// The keys, and the words behind them.
    pub(super) fn words(&self) -> Call {
        self.keys.and(&self.words)
    }

    /// The answer for the only line.
    pub(super) fn answer(&self, reply: Reply) -> Result<Reply, Trouble> {
        let mut answers = self.answers(reply)?;
        answers.pop().ok_or_else(of_another)?.ok()
    }

    /// The answers, one for each line: a refusal for a line that could not be done. An error if none could be.
    pub(super) fn answers(&self, reply: Reply) -> Result<Vec<Reply>, Trouble> {
        if let Reply::Text(mut words) = reply {
            let ours = words.starts_with(&self.mark) && words.get(8) == Some(&b' ');
            if !ours || self.lines != 1 {
                return Err(of_another());
            }
            drop(words.drain(..9));
            return Ok(vec![Reply::Text(words)]);
        }
        let mut replies = reply.list()?;
        let ours = replies.first().is_some_and(|mark| mark.is(&self.mark));
        if !ours || replies.len() != self.lines + 1 {
            return Err(of_another());
        }
        drop(replies.remove(0));
        let refused = |reply: &Reply| matches!(reply, Reply::Refused(_));
        match replies.iter().all(refused) {
            true => Err(replies.pop().map_or_else(of_another, |reply| {
                reply.ok().err().unwrap_or_else(of_another)
            })),
            false => Ok(replies),
        }
    }
}

fn id_text(claim: &Claim) -> [u8; 32] {
    hex(claim.id.as_u128())
}

/// A claim as the script reads and keeps it, in one piece: each word of a call costs the server.
fn asked(claim: &Claim, lease: u64, session: &str, who: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(128 + who.len());
    text.extend_from_slice(&id_text(claim));
    text.push(0);
    let [weight, capacity] = [claim.mode.weight(), claim.mode.capacity()];
    for number in [lease as f64, f64::from(weight), f64::from(capacity)] {
        text.extend_from_slice(&number.to_le_bytes());
    }
    text.extend_from_slice(session.as_bytes());
    text.push(0);
    text.extend_from_slice(who.as_bytes());
    text
}

fn lease(claim: &Claim) -> u64 {
    micros(claim.lease).min(LONGEST)
}

/// How long the key of a claim stays without a word, in milliseconds: until the claim has ended and the clock has passed
/// its fences, and as long again or [`MARGIN`], as `store.lua` says.
fn kept(lease: u64) -> u64 {
    let need = lease.max(u64::from(FENCE_BLOCK) + 1);
    (need + need.max(MARGIN)).div_ceil(1_000) + 1
}

fn of_another() -> Trouble {
    Trouble::Strange("the answer has the mark of another call".to_owned())
}

/// As in `store.lua`.
const MARGIN: u64 = 5_000_000;

/// The script counts in doubles; no lease is longer than 50 years.
const LONGEST: u64 = 50 * 365 * 86_400 * 1_000_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::claim::Mode;

    #[test]
    fn a_claim_is_one_word_that_the_script_takes_apart() {
        let lease = Duration::from_millis(1);
        let claim = Claim::new(Name::new("x").unwrap(), Mode::Write, lease);
        let text = asked(&claim, 1_000, "p1.2", "7\nhost\ncommand");
        let numbers = [1_000.0, f64::from(u32::MAX), f64::from(u32::MAX)].map(f64::to_le_bytes);
        let id = format!("{:032x}", claim.id.as_u128());
        let words = [
            id.as_bytes(),
            b"\0",
            numbers.as_flattened(),
            b"p1.2\0",
            b"7\nhost\ncommand",
        ];
        assert_eq!(text, words.concat());
    }

    #[test]
    fn a_key_outlives_its_claim_and_its_fences() {
        for lease in [0, 1, 257, 258, 1_000, 30_000_000, LONGEST] {
            let micros = kept(lease) * 1_000;
            assert!(micros > lease && micros > u64::from(FENCE_BLOCK), "{lease}");
            assert!(
                micros >= lease + MARGIN && micros <= 2 * lease.max(MARGIN) + 3_000,
                "{lease}"
            );
        }
    }
}
