//! What the answers of the script mean.

use std::time::Duration;

use super::client::Reply;
use super::error::Trouble;
use crate::claim::Mode;
use crate::engine::{Held, Release, Standing};
use crate::fence::{FENCE_BLOCK, Fence};
use crate::line::Refusal;

/// In microseconds.
pub(super) const SECOND: u64 = 1_000_000;

/// The words of an answer, however they came.
fn words(answer: Reply) -> Result<String, Trouble> {
    match answer {
        Reply::List(words) => {
            let words: Result<Vec<_>, _> = words.into_iter().map(Reply::text).collect();
            Ok(words?.join(" "))
        }
        answer => answer.text(),
    }
}

/// When a claim was granted that nobody else was there to see: microseconds of the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since(pub(super) u64);

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) standing: Result<Standing, Refusal>,
    /// The server's time, for a claim that waits.
    pub(super) now: u64,
}

/// What the script says to a claim; and since when it holds, if nobody else was there.
pub(super) fn claimed(answer: Reply) -> Result<(Answer, Option<Since>), Trouble> {
    let answer = words(answer)?;
    let Some((seconds, rest)) = answer
        .strip_prefix("alone ")
        .and_then(|time| time.split_once(' '))
    else {
        return Ok((standing(Reply::Text(answer.into_bytes()))?, None));
    };
    let seconds = number(Some(seconds), &answer)?.saturating_mul(SECOND);
    let now = seconds.saturating_add(number(Some(rest), &answer)?);
    let held = held(fence(now.saturating_add(1))?, false);
    let standing = Ok(Standing::Held(held));
    Ok((Answer { standing, now }, Some(Since(now))))
}

/// What the script says of one claim.
pub(super) fn standing(answer: Reply) -> Result<Answer, Trouble> {
    let answer = words(answer)?;
    let mut words = answer.split(' ');
    let first = words.next();
    let mut next = || number(words.next(), &answer);
    let small = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let mut now = 0;
    let standing = match first {
        Some("held") => {
            let fence = fence(next()?)?;
            Ok(Standing::Held(held(fence, next()? == 1)))
        }
        Some("waiting") => {
            let ahead = small(next()?);
            let look_again = Duration::from_micros(next()?);
            now = next()?;
            Ok(Standing::Waiting { ahead, look_again })
        }
        Some("busy") => Ok(Standing::Busy),
        Some("gone") => Ok(Standing::Gone),
        Some("weight") => Err(Refusal::Weight),
        Some("fences") => Err(Refusal::Fences),
        Some("capacity") => Err(Refusal::Capacity(small(next()?))),
        _ => return Err(Trouble::strange(answer)),
    };
    Ok(Answer { standing, now })
}

/// The largest fence that the script gives: Lua counts in doubles.
pub(super) const MOST: u64 = (1 << 53) - 1;

/// A fence as a server told it.
pub(super) fn fence(number: u64) -> Result<Fence, Trouble> {
    let bounded = Fence::bounded(number, MOST);
    bounded.ok_or_else(|| Trouble::Strange(format!("the fence {number}, above 2^53")))
}

fn number(word: Option<&str>, of: &str) -> Result<u64, Trouble> {
    let number = word.and_then(|word| word.parse().ok());
    number.ok_or_else(|| Trouble::strange(of))
}

pub(super) fn held(fence: Fence, wanted: bool) -> Held {
    Held {
        fence,
        block: FENCE_BLOCK,
        wanted,
    }
}

/// Whether the claim was there; and whether the script has more to grant than one call does.
pub(super) fn released(answer: Reply) -> Result<(Release, bool), Trouble> {
    match words(answer)?.as_str() {
        "released" => Ok((Release::Released, false)),
        "released 1" => Ok((Release::Released, true)),
        "gone" => Ok((Release::Gone, false)),
        "gone 1" => Ok((Release::Gone, true)),
        other => Err(Trouble::strange(other)),
    }
}

/// The fences of those who lost the lock.
pub(super) fn evicted(answer: Reply) -> Result<Vec<u64>, Trouble> {
    answer
        .list()?
        .into_iter()
        .skip(1)
        .map(Reply::number)
        .collect()
}

/// One claim as the script shows it.
pub(super) struct Shown {
    pub(super) mode: Mode,
    pub(super) since: u64,
    pub(super) until: u64,
    pub(super) fence: Option<Fence>,
    pub(super) who: String,
}

/// A page of claims, and after which arrival the next one begins; 0 for the last page.
pub(super) fn shown(answer: Reply) -> Result<(Vec<Shown>, u64), Trouble> {
    let mut words = answer.list()?.into_iter();
    let mut next = || {
        let word = words.next();
        word.ok_or(Trouble::Strange("too short".to_owned()))
    };
    let (capacity, after) = (next()?.number()?, next()?.number()?);
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
    let claims: Result<_, Trouble> = words.map(one).collect();
    Ok((claims?, after))
}
