//! The answers of the script.

use std::time::Duration;

use super::super::client::Reply;
use super::super::error::Trouble;
use super::super::words::fence;
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

/// When a claim was granted that no other client has seen: microseconds of the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since(pub(super) u64);

/// Where a claim stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) standing: Result<Standing, Refusal>,
    /// The server's time, for a claim that waits.
    pub(super) now: u64,
}

/// The answer to a claim; and since when it holds, if no other client was in the line.
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

/// The answer about one claim.
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
    /// In microseconds.
    pub(super) lease: u64,
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
        let [weight, since, until, fence, lease, who]: [Reply; 6] =
            reply.list()?.try_into().map_err(Trouble::strange)?;
        Ok(Shown {
            mode: Mode::of(weight.number()?, capacity),
            since: since.number()?,
            until: until.number::<f64>()? as u64,
            fence: Some(fence.number()?)
                .filter(|fence| *fence > 0)
                .map(Fence::new),
            lease: lease.number::<f64>()? as u64,
            who: who.text()?,
        })
    };
    let claims: Result<_, Trouble> = words.map(one).collect();
    Ok((claims?, after))
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::super::super::words::who;
    use super::super::mailbox::Mailbox;
    use super::*;

    /// An answer of lines, with lists where a line has tabs.
    fn reply(text: &str) -> Reply {
        let word = |word: &str| match word.parse() {
            Ok(number) => Reply::Number(number),
            Err(_) => Reply::Text(word.into()),
        };
        let line = |line: &str| match line.contains('\t') {
            true => Reply::List(line.split('\t').map(word).collect()),
            false => word(line),
        };
        match text.contains('\n') {
            true => Reply::List(text.split('\n').map(line).collect()),
            false => line(text),
        }
    }

    /// Every answer and every message is understood or refused.
    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_server_wrote() {
        let fuzz = crate::fuzz::Fuzz {
            name: "answer",
            words: &[
                b"\n",
                b"\t",
                b" ",
                b"held ",
                b"waiting ",
                b"alone ",
                b"capacity ",
                b"released 1",
                b"G ",
                b"E ",
                b"9007199254740992",
                b"1e300",
                b"NaN",
            ],
        };
        fuzz.run(&[], |input| {
            let text = String::from_utf8_lossy(input);
            Mailbox::default().heard(input);
            let held = standing(reply(&text)).map(|answer| answer.standing);
            if let Ok(Ok(Standing::Held(held))) = held {
                assert!(held.fence.get() < 1 << 53, "{text}");
            }
            (
                claimed(reply(&text)).is_ok(),
                held.map(|answer| answer.map(|standing| std::mem::discriminant(&standing)))
                    .is_ok(),
                released(reply(&text)).map(|(_, more)| more).ok(),
                evicted(reply(&text)).map(|fences| fences.len().min(3)).ok(),
                shown(reply(&text)).map(|page| page.0.len().min(3)).ok(),
                who(&text).is_some(),
                text.split([' ', '\t', '\n']).count().min(9),
            )
        });
    }
}
