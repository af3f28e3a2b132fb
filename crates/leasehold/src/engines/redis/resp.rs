//! Redis's protocol: commands as they are sent, and what servers say. RESP3, and RESP2, which is a part of it.

use std::fmt;

use super::error::Trouble;

/// One command.
#[derive(Clone, Default)]
pub(super) struct Call {
    words: usize,
    /// The words, each with its length before it.
    bytes: Vec<u8>,
    /// The word in the push that confirms it. Other commands are answered.
    pub(super) confirmed_by: Option<&'static [u8]>,
}

impl Call {
    pub(super) fn new(words: &str) -> Self {
        let mut call = words.split(' ').fold(Self::default(), Self::arg);
        call.confirmed_by = match words {
            "SUBSCRIBE" => Some(b"subscribe"),
            "SSUBSCRIBE" => Some(b"ssubscribe"),
            "UNSUBSCRIBE" => Some(b"unsubscribe"),
            _ => None,
        };
        call
    }

    /// Nothing yet, with room for words of so many bytes.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    #[must_use]
    pub(super) fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.push(word.as_ref());
        self
    }

    /// One more word.
    pub(super) fn push(&mut self, word: &[u8]) {
        self.words += 1;
        head(&mut self.bytes, b'$', word.len());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// One more word, a number.
    pub(super) fn push_number(&mut self, number: u64) {
        let digits = Digits::of(number);
        self.push(&digits.0[digits.1..]);
    }

    /// The words of this and those of another.
    pub(super) fn and(&self, more: &Self) -> Self {
        Self {
            words: self.words + more.words,
            bytes: [&self.bytes[..], &more.bytes].concat(),
            confirmed_by: self.confirmed_by,
        }
    }

    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        head(out, b'*', self.words);
        out.extend_from_slice(&self.bytes);
    }
}

fn head(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    Digits::of(length as u64).write_to(out);
    out.extend_from_slice(b"\r\n");
}

/// A number in decimal. Not by `format!`: there are some in every call.
struct Digits([u8; 20], usize);

impl Digits {
    fn of(mut number: u64) -> Self {
        let mut digits = Self([b'0'; 20], 20);
        while number > 0 || digits.1 == 20 {
            digits.1 -= 1;
            digits.0[digits.1] += (number % 10) as u8;
            number /= 10;
        }
        digits
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0[self.1..]);
    }
}

/// Not its words: one of them may be a password.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({} words)", self.words)
    }
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    Nil,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    Refused(Trouble),
}

impl Reply {
    /// The answer, unless it is a refusal.
    pub(super) fn ok(self) -> Result<Self, Trouble> {
        match self {
            Self::Refused(trouble) => Err(trouble),
            reply => Ok(reply),
        }
    }

    pub(super) fn list(self) -> Result<Vec<Self>, Trouble> {
        match self.ok()? {
            Self::List(list) => Ok(list),
            other => Err(Trouble::strange(other)),
        }
    }

    pub(super) fn text(self) -> Result<String, Trouble> {
        match self.ok()? {
            Self::Text(bytes) => Ok(String::from_utf8(bytes)
                .unwrap_or_else(|odd| String::from_utf8_lossy(odd.as_bytes()).into_owned())),
            Self::Number(number) => Ok(number.to_string()),
            other => Err(Trouble::strange(other)),
        }
    }

    pub(super) fn number<N: std::str::FromStr>(self) -> Result<N, Trouble> {
        let text = self.text()?;
        text.parse().map_err(|_| Trouble::strange(text))
    }

    /// Whether it is this word.
    pub(super) fn is(&self, word: &[u8]) -> bool {
        matches!(self, Self::Text(text) if text == word)
    }
}

/// What a server says.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// The answer to the oldest question.
    Answer(Reply),
    /// Something unasked.
    Push(Vec<Reply>),
}

/// The first thing said in these bytes, and how many of them that took. None while its end is missing.
pub(super) fn read(bytes: &[u8]) -> Result<Option<(Said, usize)>, Trouble> {
    let mut reader = Reader { bytes, at: 0 };
    let said = match bytes.first() {
        Some(b'>') => reader.line().and_then(|line| {
            let length = number(&line[1..])?;
            reader.several(length, 0).map(Said::Push)
        }),
        _ => reader.reply(0).map(Said::Answer),
    };
    match said {
        Ok(said) => Ok(Some((said, reader.at))),
        Err(Stop::Short) => Ok(None),
        Err(Stop::Odd) => {
            let bytes = &bytes[..bytes.len().min(100)];
            Err(Trouble::strange(String::from_utf8_lossy(bytes)))
        }
    }
}

/// Why nothing could be read.
enum Stop {
    /// The rest is still to come.
    Short,
    /// Nothing that comes later makes sense of it.
    Odd,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// Deeper than anything a server says.
const DEEPEST: usize = 16;

impl<'a> Reader<'a> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        if depth > DEEPEST {
            return Err(Stop::Odd);
        }
        let line = self.line()?;
        let (kind, rest) = line.split_first().ok_or(Stop::Odd)?;
        Ok(match kind {
            b'$' | b'=' => match number(rest)? {
                -1 => Reply::Nil,
                length => Reply::Text(self.bytes(length)?.to_vec()),
            },
            b'+' | b',' | b'(' => Reply::Text(rest.to_vec()),
            b':' => Reply::Number(number(rest)?),
            b'-' => refused(rest),
            b'!' => refused(self.bytes(number(rest)?)?),
            b'_' => Reply::Nil,
            b'#' => Reply::Number((rest == b"t").into()),
            b'*' | b'~' => match number(rest)? {
                -1 => Reply::Nil,
                length => Reply::List(self.several(length, depth + 1)?),
            },
            b'%' => Reply::List(self.several(twice(rest)?, depth + 1)?),
            // What is said about the answer that follows.
            b'|' => {
                let _ = self.several(twice(rest)?, depth + 1)?;
                self.reply(depth + 1)?
            }
            _ => return Err(Stop::Odd),
        })
    }

    fn several(&mut self, length: i64, depth: usize) -> Result<Vec<Reply>, Stop> {
        let length = usize::try_from(length).map_err(|_| Stop::Odd)?;
        // Each takes three bytes at least: no more room than there can be answers.
        let mut replies = Vec::with_capacity(length.min((self.bytes.len() - self.at) / 3));
        for _ in 0..length {
            replies.push(self.reply(depth)?);
        }
        Ok(replies)
    }

    /// Up to the end of the line, which is skipped.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\r');
        let end = end.ok_or(Stop::Short)?;
        match rest.get(end + 1) {
            None => Err(Stop::Short),
            Some(b'\n') => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            Some(_) => Err(Stop::Odd),
        }
    }

    /// So many bytes, and the end of the line after them.
    fn bytes(&mut self, length: i64) -> Result<&'a [u8], Stop> {
        let length = usize::try_from(length).map_err(|_| Stop::Odd)?;
        let rest = &self.bytes[self.at..];
        let end = length.checked_add(2).ok_or(Stop::Odd)?;
        match rest.get(length..end) {
            None => Err(Stop::Short),
            Some(b"\r\n") => {
                self.at += end;
                Ok(&rest[..length])
            }
            Some(_) => Err(Stop::Odd),
        }
    }
}

fn number(text: &[u8]) -> Result<i64, Stop> {
    let text = std::str::from_utf8(text).map_err(|_| Stop::Odd)?;
    text.parse().map_err(|_| Stop::Odd)
}

/// As many keys as values.
fn twice(text: &[u8]) -> Result<i64, Stop> {
    number(text)?.checked_mul(2).ok_or(Stop::Odd)
}

fn refused(text: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(text);
    let (code, detail) = text.split_once(' ').unwrap_or((&text, ""));
    Reply::Refused(Trouble::Refused {
        code: code.to_owned(),
        detail: detail.to_owned(),
    })
}

#[cfg(test)]
mod tests;
