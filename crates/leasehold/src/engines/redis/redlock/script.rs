//! The script of a node: how it is called and what its answers mean.

use std::time::Duration;

use super::super::client::{Call, Reply};
use super::super::error::Trouble;
use super::super::keys::{Keys, claim_id, claim_text};
use super::super::words::fence;
use crate::claim::{Claim, ClaimId};
use crate::clock::micros;
use crate::fence::Fence;
use crate::name::Name;

pub(super) const TEXT: &str = include_str!("node.lua");

/// One operation on some names.
#[derive(Debug, Clone)]
pub(super) struct Run {
    what: &'static str,
    mark: String,
    keys: Vec<String>,
    args: Vec<String>,
}

/// The claiming process, as a node stores it.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    pub(super) session: String,
    pub(super) who: String,
}

impl Run {
    /// An operation on no names yet.
    pub(super) fn new(what: &'static str) -> Self {
        let mark = format!("{:08x}", rand::random::<u32>());
        Self {
            what,
            mark,
            keys: Vec::new(),
            args: Vec::new(),
        }
    }

    fn on(mut self, keys: &Keys, name: &Name, args: impl IntoIterator<Item = String>) -> Self {
        let [line, waiters, _] = keys.of(name);
        self.keys.extend([line, waiters]);
        self.args.extend(args);
        self
    }

    fn asking(what: &'static str, keys: &Keys, claim: &Claim, asker: &Asker) -> Self {
        let waits = u8::from(claim.waits).to_string();
        Self::new(what).on(
            keys,
            &claim.name,
            about(claim, asker).into_iter().chain([waits]),
        )
    }

    pub(super) fn claim(keys: &Keys, claim: &Claim, asker: &Asker) -> Self {
        Self::asking("claim", keys, claim, asker)
    }

    pub(super) fn give_way(keys: &Keys, claim: &Claim, asker: &Asker) -> Self {
        Self::asking("yield", keys, claim, asker)
    }

    pub(super) fn confirm(keys: &Keys, claim: &Claim, fence: Fence) -> Self {
        Self::new("confirm").on(keys, &claim.name, [claim_text(claim.id), fence.to_string()])
    }

    #[must_use]
    pub(super) fn beat(self, keys: &Keys, claim: &Claim, asker: &Asker, fence: Fence) -> Self {
        self.on(
            keys,
            &claim.name,
            about(claim, asker).into_iter().chain([fence.to_string()]),
        )
    }

    #[must_use]
    pub(super) fn release(self, keys: &Keys, claim: &Claim) -> Self {
        self.on(keys, &claim.name, [claim_text(claim.id)])
    }

    pub(super) fn evict(keys: &Keys, name: &Name, fence: Option<Fence>, told: String) -> Self {
        let fence = fence.map_or(0, Fence::get).to_string();
        Self::new("evict").on(keys, name, [fence, told])
    }

    #[must_use]
    pub(super) fn look(self, keys: &Keys, name: &Name) -> Self {
        self.on(keys, name, [])
    }

    /// The call on a node whose run is known.
    pub(super) fn words(&self, marker: &str, run: (&str, &str), longest: Duration) -> Call {
        let keys = (self.keys.len() + 1).to_string();
        let call = Call::default().arg(keys).arg(marker);
        let call = self.keys.iter().fold(call, Call::arg);
        let call = call.arg(self.what).arg(&self.mark).arg(run.0).arg(run.1);
        let call = call.arg(micros(longest).to_string());
        self.args.iter().fold(call, Call::arg)
    }

    /// The answers, one for each name.
    pub(super) fn answers(&self, reply: Reply) -> Result<Vec<Vec<Reply>>, Trouble> {
        let mut replies = reply.list()?.into_iter();
        let mark = replies
            .next()
            .ok_or(Trouble::Strange("nothing".to_owned()))?
            .text()?;
        if mark != self.mark || replies.len() * 2 != self.keys.len() {
            return Err(Trouble::Strange(
                "the answer has the mark of another call".to_owned(),
            ));
        }
        // A name that could not be done says so in the place of its words.
        let words = |reply| match reply {
            refused @ Reply::Refused(_) => Ok(vec![refused]),
            reply => reply.list(),
        };
        replies.map(words).collect()
    }
}

fn about(claim: &Claim, asker: &Asker) -> [String; 4] {
    let lease = micros(claim.lease).to_string();
    [
        claim_text(claim.id),
        asker.session.clone(),
        asker.who.clone(),
        lease,
    ]
}

/// The vote of a node on one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vote {
    /// Yes, with the first fence of a block.
    Yes(Fence),
    /// Another claim has it, for so long; perhaps not with a majority.
    Busy {
        left: Duration,
        settled: bool,
    },
    /// The node started a short time ago, and stays out of votes for so long.
    New(Duration),
    Held {
        wanted: bool,
    },
    Released,
    Gone,
}

pub(super) fn vote(answer: &[Reply]) -> Result<Vote, Trouble> {
    let word = |at: usize| {
        answer
            .get(at)
            .cloned()
            .ok_or(Trouble::Strange("too short".to_owned()))
    };
    let time = |at: usize| Ok::<_, Trouble>(Duration::from_micros(word(at)?.number()?));
    Ok(match word(0)?.text()?.as_str() {
        "ok" => Vote::Yes(fence(word(1)?.number()?)?),
        "busy" => Vote::Busy {
            left: time(1)?,
            settled: word(2)?.number::<u8>()? == 1,
        },
        "new" => Vote::New(time(1)?),
        "held" => Vote::Held {
            wanted: word(1)?.number::<u8>()? == 1,
        },
        "released" => Vote::Released,
        "gone" => Vote::Gone,
        other => return Err(Trouble::strange(other)),
    })
}

/// The claim that a node evicted, and its fence.
pub(super) fn evicted(answer: &[Reply]) -> Option<(ClaimId, Fence)> {
    let [_, id, fence] = answer else { return None };
    let id = claim_id(&id.clone().text().ok()?)?;
    Some((id, Fence::new(fence.clone().number().ok()?)))
}

/// One claim as a node shows it.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) id: ClaimId,
    /// None while it waits, 0 until it is confirmed.
    pub(super) fence: Option<u64>,
    pub(super) since: u64,
    pub(super) until: u64,
    /// In microseconds; 0 where the node does not keep it, as of a waiter.
    pub(super) lease: u64,
    pub(super) who: String,
}

pub(super) fn shown(answer: Vec<Reply>) -> Result<Vec<Shown>, Trouble> {
    let one = |reply: Reply| {
        let [id, fence, since, until, lease, who]: [Reply; 6] =
            reply.list()?.try_into().map_err(Trouble::strange)?;
        Ok(Shown {
            id: claim_id(&id.text()?).ok_or(Trouble::Strange("not an id".to_owned()))?,
            fence: u64::try_from(fence.number::<i64>()?).ok(),
            since: since.number()?,
            until: until.number()?,
            lease: lease.number()?,
            who: who.text()?,
        })
    };
    let mut words = answer.into_iter();
    let _ = words.next().unwrap_or(Reply::Nil).ok()?;
    words.map(one).collect()
}
