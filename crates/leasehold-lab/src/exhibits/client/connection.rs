//! As much of Redis's protocol as a hand-rolled lock uses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::Outcome;

/// One connection.
#[derive(Debug)]
pub(super) struct Redis(BufReader<TcpStream>);

impl Redis {
    /// Connects to `redis://HOST:PORT`.
    pub(super) fn connect(url: &str) -> Outcome<Self> {
        let address = url.rsplit('/').next().unwrap_or_default();
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    /// One command; the answer as text, `nil` for none.
    pub(super) fn ask(&mut self, words: &[&str]) -> Outcome<String> {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(bytes.as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> Outcome<String> {
        let mut line = String::new();
        let _ = self.0.read_line(&mut line)?;
        let line = line.trim_end();
        match line.split_at_checked(1) {
            Some(("+" | ":", rest)) => Ok(rest.to_owned()),
            Some(("$", "-1")) => Ok("nil".to_owned()),
            Some(("$", length)) => {
                let mut text = vec![0; length.parse::<usize>()? + 2];
                self.0.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                Ok(String::from_utf8(text)?)
            }
            _ => Err(format!("redis said: {line}").into()),
        }
    }
}
