//! The script: how it is called and what its answers mean.

use std::time::Duration;

use super::error::Trouble;
use super::keys::{Keys, claim_text};
use super::wire::{Call, Reply};
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
    mark: String,
    keys: Vec<String>,
    args: Vec<String>,
}

impl Run {
    fn new(what: &'static str) -> Self {
        let mark = format!("{:08x}", rand::random::<u32>());
        Self {
            what,
            mark,
            keys: Vec::new(),
            args: Vec::new(),
        }
    }

    pub(super) fn claim(keys: &Keys, claim: &Claim, session: &str, who: &str) -> Self {
        let mut run = Self::new("claim");
        run.keys.push(keys.line(&claim.name));
        run.args.extend([
            claim_text(claim.id),
            session.to_owned(),
            claim.mode.weight().to_string(),
            claim.mode.capacity().to_string(),
            micros(claim.lease).min(LONGEST).to_string(),
            u8::from(claim.waits).to_string(),
            who.to_owned(),
        ]);
        run
    }

    pub(super) fn beat<'a>(keys: &Keys, claims: impl IntoIterator<Item = &'a Claim>) -> Self {
        let mut run = Self::new("beat");
        for claim in claims {
            run.keys.push(keys.line(&claim.name));
            run.args.push(claim_text(claim.id));
        }
        run
    }

    pub(super) fn release<'a>(
        keys: &Keys,
        claims: impl IntoIterator<Item = (&'a Claim, u32)>,
    ) -> Self {
        let mut run = Self::new("release");
        for (claim, used) in claims {
            run.keys.push(keys.line(&claim.name));
            run.args.extend([claim_text(claim.id), used.to_string()]);
        }
        run
    }

    pub(super) fn evict(key: String, fence: Option<Fence>, told: String) -> Self {
        let mut run = Self::new("evict");
        run.keys.push(key);
        run.args
            .extend([fence.map_or(0, Fence::get).to_string(), told]);
        run
    }

    pub(super) fn look(key: String) -> Self {
        let mut run = Self::new("look");
        run.keys.push(key);
        run
    }

    /// Whether the answer can be that a claim holds.
    pub(super) fn may_grant(&self) -> bool {
        matches!(self.what, "claim" | "beat")
    }

    pub(super) fn call(&self, digest: &str) -> Call {
        let call = Call::new("EVALSHA")
            .arg(digest)
            .arg(self.keys.len().to_string());
        let call = self
            .keys
            .iter()
            .fold(call, Call::arg)
            .arg(self.what)
            .arg(&self.mark);
        self.args.iter().fold(call, Call::arg)
    }

    /// The answers, one for each line. A single short one comes as a string of words.
    pub(super) fn answers(&self, reply: Reply) -> Result<Vec<Vec<Reply>>, Trouble> {
        if let Reply::Text(words) = &reply {
            let mut words = words.split(|byte| *byte == b' ');
            let ours = words.next() == Some(self.mark.as_bytes()) && self.keys.len() == 1;
            let answer = words.map(|word| Reply::Text(word.to_vec())).collect();
            return ours.then(|| vec![answer]).ok_or_else(of_another);
        }
        let mut replies = reply.list()?.into_iter();
        let mark = replies.next().map(Reply::text).transpose()?;
        if mark.as_ref() != Some(&self.mark) || replies.len() != self.keys.len() {
            return Err(of_another());
        }
        replies.map(Reply::list).collect()
    }
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
