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

/// What the script says to a claim; and since when it holds, if nobody else was there.
pub(super) fn claimed(
    answer: Reply,
) -> Result<(Result<Standing, Refusal>, Option<Since>), Trouble> {
    let answer = words(answer)?;
    let Some((seconds, rest)) = answer
        .strip_prefix("alone ")
        .and_then(|time| time.split_once(' '))
    else {
        return Ok((standing(Reply::Text(answer.into_bytes()))?, None));
    };
    let seconds = number(Some(seconds), &answer)?.saturating_mul(SECOND);
    let since = seconds.saturating_add(number(Some(rest), &answer)?);
    let held = held(Fence::new(since.saturating_add(1)), false);
    Ok((Ok(Standing::Held(held)), Some(Since(since))))
}

/// What the script says of one claim.
pub(super) fn standing(answer: Reply) -> Result<Result<Standing, Refusal>, Trouble> {
    let answer = words(answer)?;
    let mut words = answer.split(' ');
    let first = words.next();
    let mut next = || number(words.next(), &answer);
    Ok(Ok(match first {
        Some("held") => {
            let fence = Fence::new(next()?);
            Standing::Held(held(fence, next()? == 1))
        }
        Some("waiting") => {
            let ahead = u32::try_from(next()?).unwrap_or(u32::MAX);
            let look_again = Duration::from_micros(next()?);
            Standing::Waiting { ahead, look_again }
        }
        Some("busy") => Standing::Busy,
        Some("gone") => Standing::Gone,
        Some("weight") => return Ok(Err(Refusal::Weight)),
        Some("fences") => return Ok(Err(Refusal::Fences)),
        Some("capacity") => {
            let capacity = u32::try_from(next()?).unwrap_or(u32::MAX);
            return Ok(Err(Refusal::Capacity(capacity)));
        }
        _ => return Err(Trouble::strange(answer)),
    }))
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
