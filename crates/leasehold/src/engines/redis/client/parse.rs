//! The parser of RESP3, fed as bytes come: each byte once, and no more of them kept than a frame may have.

use super::super::error::Trouble;
use super::resp::Reply;

/// A whole answer or push message.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// The answer to the oldest request.
    Answer(Reply),
    /// Something unasked.
    Push(Vec<Reply>),
}

/// A value that has begun and not ended yet.
#[derive(Debug, Default)]
pub(super) struct Parser {
    open: Vec<Open>,
    /// How much of this frame there is already.
    elements: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Open {
    what: What,
    left: usize,
    replies: Vec<Reply>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    List,
    Push,
    /// Comes before the answer that it is about; left out.
    Attribute,
}

enum Item {
    One(Reply),
    Begin(What, usize),
}

/// Larger than anything a server has to say: a hostile one gets no more memory than this.
const LARGEST: usize = 16 * 1024 * 1024;
const MOST_ELEMENTS: usize = 1_000_000;
const LONGEST_LINE: usize = 64 * 1024;
const DEEPEST: usize = 16;

/// Nothing that comes later makes sense of it.
struct Odd;

impl Parser {
    /// Reads on. How many bytes were used, and what is complete with them, if anything is.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<(usize, Option<Said>), Trouble> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match self.step(rest) {
                Ok(None) => return Ok((at, None)),
                Ok(Some((length, None))) => at += length,
                Ok(Some((length, said))) => return Ok((at + length, said)),
                Err(Odd) => {
                    let rest = &rest[..rest.len().min(100)];
                    return Err(Trouble::strange(String::from_utf8_lossy(rest)));
                }
            }
        }
    }

    /// One item further; none while its end is missing.
    fn step(&mut self, bytes: &[u8]) -> Result<Option<(usize, Option<Said>)>, Odd> {
        let Some((item, length)) = item(bytes)? else {
            return Ok(None);
        };
        self.bytes += length;
        self.elements += 1;
        if self.bytes > LARGEST || self.elements > MOST_ELEMENTS {
            return Err(Odd);
        }
        let said = match item {
            Item::One(reply) => self.take(reply),
            Item::Begin(what, left) => self.begin(what, left)?,
        };
        if said.is_some() {
            (self.elements, self.bytes) = (0, 0);
        }
        Ok(Some((length, said)))
    }

    fn begin(&mut self, what: What, left: usize) -> Result<Option<Said>, Odd> {
        let nested = !self.open.is_empty();
        if self.open.len() >= DEEPEST || left > MOST_ELEMENTS || what == What::Push && nested {
            return Err(Odd);
        }
        let replies = Vec::new();
        if left > 0 {
            self.open.push(Open {
                what,
                left,
                replies,
            });
            return Ok(None);
        }
        Ok(self.end(what, replies))
    }

    fn end(&mut self, what: What, replies: Vec<Reply>) -> Option<Said> {
        match what {
            What::List => self.take(Reply::List(replies)),
            What::Push => Some(Said::Push(replies)),
            What::Attribute => None,
        }
    }

    /// One more answer: to the request, or in the list that it is part of.
    fn take(&mut self, reply: Reply) -> Option<Said> {
        let Some(open) = self.open.last_mut() else {
            return Some(Said::Answer(reply));
        };
        open.replies.push(reply);
        open.left -= 1;
        if open.left > 0 {
            return None;
        }
        let Open { what, replies, .. } = self.open.pop()?;
        self.end(what, replies)
    }
}

/// The first item, and how many bytes it takes; none while its end is missing.
fn item(bytes: &[u8]) -> Result<Option<(Item, usize)>, Odd> {
    let Some(line) = line(bytes)? else {
        return Ok(None);
    };
    let (kind, rest) = line.split_first().ok_or(Odd)?;
    let after = line.len() + 2;
    let one = |reply| Ok(Some((Item::One(reply), after)));
    let several = |what, length| Ok(Some((Item::Begin(what, length), after)));
    match kind {
        b'$' | b'*' if rest == b"-1" => one(Reply::Nil),
        b'$' | b'=' | b'!' => {
            let Some(text) = text(&bytes[after..], length(rest)?)? else {
                return Ok(None);
            };
            let reply = match kind {
                b'!' => refused(text),
                _ => Reply::Text(text.to_vec()),
            };
            Ok(Some((Item::One(reply), after + text.len() + 2)))
        }
        b'+' | b',' | b'(' => one(Reply::Text(rest.to_vec())),
        b':' => one(Reply::Number(number(rest)?)),
        b'-' => one(refused(rest)),
        b'_' => one(Reply::Nil),
        b'#' => one(Reply::Number((rest == b"t").into())),
        b'*' | b'~' => several(What::List, length(rest)?),
        b'>' => several(What::Push, length(rest)?),
        // As many keys as values.
        b'%' => several(What::List, 2 * length(rest)?),
        b'|' => several(What::Attribute, 2 * length(rest)?),
        _ => Err(Odd),
    }
}

/// Up to the end of the line.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Odd> {
    let seen = &bytes[..bytes.len().min(LONGEST_LINE)];
    match seen.iter().position(|byte| *byte == b'\r') {
        None if seen.len() == LONGEST_LINE => Err(Odd),
        None => Ok(None),
        Some(end) => match bytes.get(end + 1) {
            None => Ok(None),
            Some(b'\n') => Ok(Some(&bytes[..end])),
            Some(_) => Err(Odd),
        },
    }
}

/// So many bytes, with the end of a line after them.
fn text(bytes: &[u8], length: usize) -> Result<Option<&[u8]>, Odd> {
    match bytes.get(length..length + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some(&bytes[..length])),
        Some(_) => Err(Odd),
    }
}

fn number(text: &[u8]) -> Result<i64, Odd> {
    let text = std::str::from_utf8(text).map_err(|_| Odd)?;
    text.parse().map_err(|_| Odd)
}

/// A number of bytes or elements that a frame can have.
fn length(text: &[u8]) -> Result<usize, Odd> {
    let length = usize::try_from(number(text)?).map_err(|_| Odd)?;
    (length <= LARGEST).then_some(length).ok_or(Odd)
}

fn refused(text: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(text);
    let (code, detail) = text.split_once(' ').unwrap_or((&text, ""));
    Reply::Refused(Trouble::Refused {
        code: code.to_owned(),
        detail: detail.to_owned(),
    })
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
