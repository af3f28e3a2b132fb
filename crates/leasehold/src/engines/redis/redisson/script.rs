//! The script: how it is called and what its answers mean.

use std::time::Duration;

use super::super::client::{Call, Reply};
use super::super::error::Trouble;
use super::super::words::fence;
use super::kind::Kind;
use crate::claim::{Claim, Mode};
use crate::engine::{Held, Release};
use crate::fence::Fence;
use crate::name::Name;

pub(super) const TEXT: &str = concat!(
    include_str!("head.lua"),
    include_str!("lock.lua"),
    include_str!("fair.lua"),
    include_str!("rwlock.lua"),
    include_str!("semaphore.lua"),
    include_str!("permits.lua"),
    include_str!("tail.lua"),
);

/// One operation on one name.
#[derive(Debug, Clone)]
pub(super) struct Run {
    kind: Kind,
    what: &'static str,
    /// Comes back with the answer, so that it is never taken for that of another call.
    mark: String,
    keys: Vec<String>,
    owner: String,
    lease: u128,
    args: Vec<String>,
}

impl Run {
    fn new(kind: Kind, what: &'static str, name: &Name) -> Self {
        Self {
            kind,
            what,
            mark: format!("{:08x}", rand::random::<u32>()),
            keys: kind.keys(name),
            owner: String::new(),
            lease: 0,
            args: Vec::new(),
        }
    }

    fn of(kind: Kind, what: &'static str, claim: &Claim, owner: &str) -> Self {
        let mut run = Self::new(kind, what, &claim.name);
        run.owner = owner.to_owned();
        // Rounded up: the server keeps a claim no shorter than its session believes.
        run.lease = claim.lease.as_micros().div_ceil(1_000).clamp(1, LONGEST);
        run
    }

    /// Takes it if it is free, or goes on holding it.
    pub(super) fn claim(kind: Kind, claim: &Claim, owner: &str, who: &str) -> Self {
        let mut run = Self::of(kind, "claim", claim, owner);
        run.args = vec![who.to_owned(), u8::from(claim.waits).to_string()];
        run.args.extend(words(kind, claim.mode));
        run
    }

    pub(super) fn beat(kind: Kind, claim: &Claim, owner: &str) -> Self {
        let mut run = Self::of(kind, "beat", claim, owner);
        run.args = vec![String::new(), String::new()];
        run.args.extend(words(kind, claim.mode));
        run
    }

    pub(super) fn release(kind: Kind, claim: &Claim, owner: &str, used: u32) -> Self {
        let mut run = Self::of(kind, "release", claim, owner);
        run.args = vec![used.to_string()];
        run
    }

    pub(super) fn evict(kind: Kind, name: &Name, fence: Option<Fence>) -> Self {
        let mut run = Self::new(kind, "evict", name);
        run.args = vec![fence.map_or(0, Fence::get).to_string(), String::new()];
        run.args.extend(words(kind, Mode::Mutex));
        run
    }

    pub(super) fn look(kind: Kind, name: &Name) -> Self {
        Self::new(kind, "look", name)
    }

    pub(super) fn words(&self) -> Call {
        let call = Call::default().arg(self.keys.len().to_string());
        let call = self.keys.iter().fold(call, Call::arg);
        let call = call.arg(self.kind.word()).arg(self.what).arg(&self.mark);
        let call = call.arg(&self.owner).arg(self.lease.to_string());
        self.args.iter().fold(call, Call::arg)
    }

    pub(super) fn answer(&self, reply: Reply) -> Result<Vec<Reply>, Trouble> {
        let [mark, answer]: [Reply; 2] = reply.list()?.try_into().map_err(Trouble::strange)?;
        match mark.text()? == self.mark {
            true => answer.list(),
            false => Err(Trouble::Strange(
                "the answer has the mark of another call".to_owned(),
            )),
        }
    }
}

/// The script counts in doubles; no lease is longer than 50 years.
const LONGEST: u128 = 50 * 365 * 86_400 * 1_000;

/// The arguments of a claim besides its owner.
fn words(kind: Kind, mode: Mode) -> Vec<String> {
    match (kind, mode) {
        (Kind::Fenced, _) => vec!["fenced".to_owned()],
        (Kind::ReadWrite, mode) => vec![mode.to_string()],
        (_, Mode::Permits { count, of }) => vec![count.to_string(), of.to_string()],
        _ => Vec::new(),
    }
}

/// The script's answer about one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Held(Held),
    /// Another owner has it; when that may have ended, if it is known.
    Busy(Option<Duration>),
    Gone,
    /// The name is in use with this capacity.
    Capacity(u32),
    /// The name is in use as another kind of lock.
    Kind,
    /// The name has the most claims that there may be.
    Full,
}

pub(super) fn said(answer: Vec<Reply>) -> Result<Said, Trouble> {
    let mut words = answer.into_iter();
    let mut next = move || words.next().ok_or(Trouble::Strange("too short".to_owned()));
    let first = next()?.text()?;
    Ok(match first.as_str() {
        "held" => {
            let fence = fence(next()?.number()?)?;
            // Waiters in other processes are not visible: assume one.
            Said::Held(Held {
                fence,
                block: next()?.number()?,
                wanted: true,
            })
        }
        "busy" => Said::Busy(
            u64::try_from(next()?.number::<i64>()?)
                .ok()
                .map(Duration::from_millis),
        ),
        "gone" => Said::Gone,
        "capacity" => Said::Capacity(next()?.number()?),
        "kind" => Said::Kind,
        "full" => Said::Full,
        other => return Err(Trouble::strange(other)),
    })
}

pub(super) fn released(answer: Vec<Reply>) -> Result<Release, Trouble> {
    let word = answer.into_iter().next().map(Reply::text).transpose()?;
    match word.as_deref() {
        Some("released") => Ok(Release::Released),
        Some("gone") => Ok(Release::Gone),
        other => Err(Trouble::strange(other)),
    }
}

/// One claim as the script shows it.
#[derive(Debug)]
pub(super) struct Shown {
    pub(super) owner: String,
    /// 0 for one that waits.
    pub(super) weight: u32,
    pub(super) left: Duration,
    pub(super) fence: Option<Fence>,
    /// Microseconds of the server's clock; 0 if it is not known.
    pub(super) since: u64,
    pub(super) who: String,
}

pub(super) fn shown(answer: Vec<Reply>) -> Result<Vec<Shown>, Trouble> {
    let one = |reply: Reply| {
        let [owner, weight, left, fence, since, who]: [Reply; 6] =
            reply.list()?.try_into().map_err(Trouble::strange)?;
        let left: i64 = left.number()?;
        Ok(Shown {
            owner: owner.text()?,
            weight: weight.number()?,
            left: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
            fence: Some(fence.number()?)
                .filter(|fence| *fence > 0)
                .map(Fence::new),
            since: since.number()?,
            who: who.text()?,
        })
    };
    answer.into_iter().map(one).collect()
}
