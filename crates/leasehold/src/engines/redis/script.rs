//! The script: how it is called and what its answers mean.

use std::time::Duration;

use super::error::Trouble;
use super::keys::{Keys, hex};
use super::resp::{Call, Reply};
use crate::claim::{Claim, Mode};
use crate::clock::micros;
use crate::engine::{Held, Release, Standing};
use crate::fence::{FENCE_BLOCK, Fence};
use crate::line::Refusal;

/// The rule of a line, as the server runs it: what is common first.
const TEXT: &str = concat!(
    include_str!("alone.lua"),
    "\n",
    include_str!("crowd.lua"),
    "\n",
    include_str!("beat.lua"),
    "\n",
    include_str!("line.lua")
);

/// Loads the script; the answer is the digest it is called by.
pub(super) fn load() -> Call {
    Call::new("SCRIPT LOAD").arg(TEXT)
}

/// One operation of the script on some lines.
#[derive(Debug, Clone)]
pub(super) struct Run {
    what: &'static str,
    /// Comes back with the answer, so that it is never taken for that of another call.
    mark: [u8; 8],
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Run {
    fn new(what: &'static str, keys: Vec<String>, args: Vec<Vec<u8>>) -> Self {
        Self {
            what,
            mark: hex(rand::random::<u32>().into()),
            keys,
            args,
        }
    }

    pub(super) fn claim(keys: &Keys, claim: &Claim, session: &str, who: &str) -> Self {
        let lease = micros(claim.lease).min(LONGEST);
        let args = vec![
            asked(claim, lease, session, who),
            kept(lease).to_string().into_bytes(),
            vec![if claim.waits { b'1' } else { b'0' }],
        ];
        Self::new("claim", vec![keys.line(&claim.name)], args)
    }

    pub(super) fn beat<'a>(keys: &Keys, claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let words = |claim: &Claim| (keys.line(&claim.name), id_text(claim));
        let (keys, args) = claims.into_iter().map(words).unzip();
        Self::new("beat", keys, args)
    }

    pub(super) fn release<'a>(
        keys: &Keys,
        claims: impl IntoIterator<Item = (&'a Claim, u32)>,
    ) -> Self {
        let (mut lines, mut args) = (Vec::with_capacity(1), Vec::with_capacity(2));
        for (claim, used) in claims {
            lines.push(keys.line(&claim.name));
            args.extend([id_text(claim), used.to_string().into_bytes()]);
        }
        Self::new("release", lines, args)
    }

    pub(super) fn evict(key: String, fence: Option<Fence>, told: String) -> Self {
        let words = [fence.map_or(0, Fence::get).to_string(), told];
        Self::new("evict", vec![key], words.map(String::into_bytes).to_vec())
    }

    pub(super) fn look(key: String) -> Self {
        Self::new("look", vec![key], Vec::new())
    }

    /// Whether the answer can be that a claim holds.
    pub(super) fn may_grant(&self) -> bool {
        matches!(self.what, "claim" | "beat")
    }

    pub(super) fn call(&self, digest: &str) -> Call {
        let lengths = self.keys.iter().map(String::len);
        let lengths = lengths.chain(self.args.iter().map(Vec::len));
        let room = Call::with_room(lengths.map(|length| length + 8).sum::<usize>() + 128);
        let call = room
            .arg("EVALSHA")
            .arg(digest)
            .arg(self.keys.len().to_string());
        let call = self
            .keys
            .iter()
            .fold(call, Call::arg)
            .arg(self.what)
            .arg(self.mark);
        self.args.iter().fold(call, Call::arg)
    }

    /// The answers, one for each line. A single short one comes as a string of words.
    pub(super) fn answers(&self, reply: Reply) -> Result<Vec<Vec<Reply>>, Trouble> {
        if let Reply::Text(words) = &reply {
            let mut words = words.split(|byte| *byte == b' ');
            let ours = words.next() == Some(&self.mark) && self.keys.len() == 1;
            let answer = words.map(|word| Reply::Text(word.to_vec())).collect();
            return ours.then(|| vec![answer]).ok_or_else(of_another);
        }
        let mut replies = reply.list()?.into_iter();
        let mark = replies.next().map(Reply::text).transpose()?;
        let ours = mark.is_some_and(|mark| mark.as_bytes() == self.mark);
        if !ours || replies.len() != self.keys.len() {
            return Err(of_another());
        }
        replies.map(Reply::list).collect()
    }
}

fn id_text(claim: &Claim) -> Vec<u8> {
    hex::<32>(claim.id.as_u128()).to_vec()
}

/// A claim as the script reads and keeps it, in one piece: each word of a call costs the server.
fn asked(claim: &Claim, lease: u64, session: &str, who: &str) -> Vec<u8> {
    let mut text = Vec::with_capacity(128 + who.len());
    text.extend_from_slice(&hex::<32>(claim.id.as_u128()));
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

/// How long the key of a claim stays without a word, in milliseconds: until the claim has ended and the clock has passed
/// its fences, and as long again, so that not every heartbeat has to move it.
fn kept(lease: u64) -> u64 {
    (lease.max(u64::from(FENCE_BLOCK) + 1) * 2).div_ceil(1_000) + 1
}

fn of_another() -> Trouble {
    Trouble::Strange("the answer to another call".to_owned())
}

/// The script counts in doubles; no lease is longer than 50 years.
const LONGEST: u64 = 50 * 365 * 86_400 * 1_000_000;

/// What the script says of one claim.
pub(super) fn standing(answer: Vec<Reply>) -> Result<Result<Standing, Refusal>, Trouble> {
    let mut words = answer.into_iter();
    let mut next = move || words.next().ok_or(Trouble::Strange("too short".to_owned()));
    let first = next()?.text()?;
    Ok(Ok(match first.as_str() {
        "held" => {
            let fence = Fence::new(next()?.number()?);
            let wanted = next()?.number::<u8>()? == 1;
            Standing::Held(held(fence, wanted))
        }
        "waiting" => {
            let ahead = next()?.number()?;
            let look_again = Duration::from_micros(next()?.number()?);
            Standing::Waiting { ahead, look_again }
        }
        "busy" => Standing::Busy,
        "gone" => Standing::Gone,
        "weight" => return Ok(Err(Refusal::Weight)),
        "fences" => return Ok(Err(Refusal::Fences)),
        "capacity" => return Ok(Err(Refusal::Capacity(next()?.number()?))),
        other => return Err(Trouble::strange(other)),
    }))
}

pub(super) fn held(fence: Fence, wanted: bool) -> Held {
    Held {
        fence,
        block: FENCE_BLOCK,
        wanted,
    }
}

pub(super) fn released(answer: Vec<Reply>) -> Result<Release, Trouble> {
    let word = answer.into_iter().next().map(Reply::text).transpose()?;
    match word.as_deref() {
        Some("released") => Ok(Release::Released),
        Some("gone") => Ok(Release::Gone),
        other => Err(Trouble::strange(other)),
    }
}

/// The fences of those who lost the lock.
pub(super) fn evicted(answer: Vec<Reply>) -> Result<Vec<u64>, Trouble> {
    answer.into_iter().skip(1).map(Reply::number).collect()
}

/// One claim as the script shows it.
pub(super) struct Shown {
    pub(super) mode: Mode,
    pub(super) since: u64,
    pub(super) until: u64,
    pub(super) fence: Option<Fence>,
    pub(super) who: String,
}

pub(super) fn shown(answer: Vec<Reply>) -> Result<Vec<Shown>, Trouble> {
    let mut words = answer.into_iter();
    let capacity = words
        .next()
        .ok_or(Trouble::Strange("too short".to_owned()))?
        .number()?;
    let one = |reply: Reply| {
        let [weight, since, until, fence, who]: [Reply; 5] =
            reply.list()?.try_into().map_err(Trouble::strange)?;
        Ok(Shown {
            mode: Mode::of(weight.number()?, capacity),
            since: since.number()?,
            until: until.number::<f64>()? as u64,
            fence: Some(fence.number()?)
                .filter(|fence| *fence > 0)
                .map(Fence::new),
            who: who.text()?,
        })
    };
    words.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Name;

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
            assert!(micros <= 2 * lease.max(1_000) + 3_000, "{lease}");
        }
    }
}
