//! Redis's protocol, RESP3: commands as they are sent, and answers.

use std::fmt;

use super::super::error::Trouble;

/// One command.
#[derive(Clone, Default)]
pub(in super::super) struct Call {
    words: usize,
    /// The words, each with its length before it.
    bytes: Vec<u8>,
    /// The word in the push that confirms it. Other commands are answered.
    pub(in super::super) confirmed_by: Option<&'static [u8]>,
}

impl Call {
    pub(in super::super) fn new(words: &str) -> Self {
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
    pub(in super::super) fn with_room(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    #[must_use]
    pub(in super::super) fn arg(mut self, word: impl AsRef<[u8]>) -> Self {
        self.push(word.as_ref());
        self
    }

    /// One more word.
    pub(in super::super) fn push(&mut self, word: &[u8]) {
        self.words += 1;
        head(&mut self.bytes, b'$', word.len());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// One more word, a number.
    pub(in super::super) fn push_number(&mut self, number: u64) {
        let digits = Digits::of(number);
        self.push(&digits.0[digits.1..]);
    }

    /// The words of this and those of another.
    pub(in super::super) fn and(&self, more: &Self) -> Self {
        Self {
            words: self.words + more.words,
            bytes: [&self.bytes[..], &more.bytes].concat(),
            confirmed_by: self.confirmed_by,
        }
    }

    pub(in super::super) fn write_to(&self, out: &mut Vec<u8>) {
        head(out, b'*', self.words);
        out.extend_from_slice(&self.bytes);
    }
}

pub(super) fn head(out: &mut Vec<u8>, kind: u8, length: usize) {
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

#[derive(Debug, Clone, PartialEq)]
pub(in super::super) enum Reply {
    Nil,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
    Refused(Trouble),
}

impl Reply {
    /// The answer, unless it is a refusal.
    pub(in super::super) fn ok(self) -> Result<Self, Trouble> {
        match self {
            Self::Refused(trouble) => Err(trouble),
            reply => Ok(reply),
        }
    }

    pub(in super::super) fn list(self) -> Result<Vec<Self>, Trouble> {
        match self.ok()? {
            Self::List(list) => Ok(list),
            other => Err(Trouble::strange(other)),
        }
    }

    pub(in super::super) fn text(self) -> Result<String, Trouble> {
        match self.ok()? {
            Self::Text(bytes) => Ok(String::from_utf8(bytes)
                .unwrap_or_else(|odd| String::from_utf8_lossy(odd.as_bytes()).into_owned())),
            Self::Number(number) => Ok(number.to_string()),
            other => Err(Trouble::strange(other)),
        }
    }

    pub(in super::super) fn number<N: std::str::FromStr>(self) -> Result<N, Trouble> {
        let text = self.text()?;
        text.parse().map_err(|_| Trouble::strange(text))
    }

    /// Whether it is this word.
    pub(in super::super) fn is(&self, word: &[u8]) -> bool {
        matches!(self, Self::Text(text) if text == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_its_words_with_their_lengths() {
        let call = Call::new("HELLO 3").arg("ä").arg([0; 10]);
        let mut out = b"before".to_vec();
        call.write_to(&mut out);
        let sent =
            b"before*4\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$2\r\n\xc3\xa4\r\n$10\r\n\0\0\0\0\0\0\0\0\0\0\r\n";
        assert_eq!(out, sent);
        for number in [0, 7, 10, 99, 12_345, u64::MAX] {
            let (mut as_number, mut out) = (Call::default(), Vec::new());
            as_number.push_number(number);
            as_number.write_to(&mut out);
            let text = number.to_string();
            let sent = format!("*1\r\n${}\r\n{text}\r\n", text.len());
            assert_eq!(out, sent.as_bytes());
        }
        assert_eq!(
            format!("{:?}", call.arg("secret")),
            "Call(5 words)",
            "it never shows a password"
        );
    }
}
