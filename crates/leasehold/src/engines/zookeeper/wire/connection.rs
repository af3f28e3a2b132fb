//! One connection: frames of bytes, and whether the other side is silent.

use std::io::ErrorKind;
use std::sync::Arc;

use super::channel::{Reading, Writing, open};
use super::jute::senseless;
use super::pipe::{Look, Pipe};
use super::terms::{Answer, Trouble};
use crate::engines::tls::Tls;

/// A connection that serves the session.
pub(super) struct Connection {
    reading: Reading,
    pub(super) writing: Arc<Writing>,
    /// What was read and not yet understood.
    heard: Vec<u8>,
}

/// Room for what is read at once.
const ROOM: usize = 16 * 1024;

impl Connection {
    pub(super) async fn to(host: &str, tls: Option<&Tls>) -> Answer<Self> {
        let (reading, writing) = open(host, tls).await.map_err(unreached)?;
        Ok(Self {
            reading,
            writing: Arc::new(writing),
            heard: Vec::with_capacity(ROOM),
        })
    }

    pub(super) async fn write(&self, mut bytes: &[u8]) -> Answer<()> {
        loop {
            let written = match bytes.is_empty() {
                true => self.writing.flush().map(|()| 0),
                false => self.writing.try_write(bytes),
            };
            match written {
                Ok(0) => return Ok(()),
                Ok(some) => bytes = &bytes[some..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.writing.writable().await.map_err(unreached)?;
                }
                Err(error) => return Err(unreached(error)),
            }
        }
    }

    /// Reads some. Dropped, nothing was read.
    pub(super) async fn read(&mut self) -> Answer<()> {
        match self.reading.read(&mut self.heard).await {
            Ok(0) => Err(Trouble::Unknown(
                "the server closed the connection".to_owned(),
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(unreached(error)),
        }
    }

    /// Passes on whatever is complete.
    pub(super) fn understand(&mut self, pipe: &Arc<Pipe>) -> Answer<()> {
        let mut at = 0;
        while let Some(length) = frame_at(&self.heard[at..])? {
            let _ = pipe.hear(&self.heard[at + 4..at + 4 + length])?;
            at += 4 + length;
        }
        drop(self.heard.drain(..at));
        Ok(())
    }

    /// The next frame.
    pub(super) async fn frame(&mut self) -> Answer<Vec<u8>> {
        loop {
            if let Some(length) = frame_at(&self.heard)? {
                let frame = self.heard[4..4 + length].to_vec();
                drop(self.heard.drain(..4 + length));
                return Ok(frame);
            }
            self.read().await?;
        }
    }
}

/// How long the frame is that begins here; none while its end is missing.
fn frame_at(bytes: &[u8]) -> Answer<Option<usize>> {
    let Some(length) = bytes.first_chunk() else {
        return Ok(None);
    };
    let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| senseless())?;
    Ok((bytes.len() - 4 >= length).then_some(length))
}

pub(super) fn unreached(error: std::io::Error) -> Trouble {
    Trouble::Unknown(error.to_string())
}

/// How often nothing was said, and nothing heard that should have been, in a row.
#[derive(Default)]
pub(super) struct Silence {
    ours: u32,
    theirs: u32,
    /// Whether a word was asked for that has not come.
    asked: bool,
}

impl Silence {
    pub(super) fn is_too_long(&mut self, look: &Look) -> bool {
        self.asked &= !look.heard;
        self.theirs = match look.heard || !(look.asked || self.asked) {
            true => 0,
            false => self.theirs + 1,
        };
        self.theirs > 2
    }

    pub(super) fn asks_for_a_word(&mut self, look: &Look) -> bool {
        self.ours = if look.spoke { 0 } else { self.ours + 1 };
        let asks = self.ours > 1 && !self.asked;
        self.asked |= asks;
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_says_nothing_is_asked_and_who_does_not_answer_is_given_up() {
        let look = |spoke, heard, asked| Look {
            spoke,
            heard,
            asked,
        };
        let (quiet, answered) = (look(false, false, false), look(false, true, false));
        let mut silence = Silence::default();
        let mut tick = |look: &Look| (silence.is_too_long(look), silence.asks_for_a_word(look));
        assert_eq!(tick(&look(true, true, false)), (false, false));
        assert_eq!(tick(&quiet), (false, false), "nobody is expected to speak");
        assert_eq!(tick(&quiet), (false, true));
        assert_eq!(tick(&answered), (false, true), "and again");
        assert_eq!(tick(&quiet), (false, false));
        assert_eq!(tick(&quiet), (false, false));
        assert_eq!(tick(&quiet), (true, false));
        let mut silence = Silence::default();
        let asked = look(true, false, true);
        let given_up: Vec<_> = (0..3).map(|_| silence.is_too_long(&asked)).collect();
        assert_eq!(given_up, [false, false, true]);
    }

    #[test]
    fn a_frame_is_taken_whole() {
        assert_eq!(frame_at(&[0, 0, 0]), Ok(None));
        assert_eq!(frame_at(&[0, 0, 0, 2, 7]), Ok(None));
        assert_eq!(frame_at(&[0, 0, 0, 2, 7, 7, 7]), Ok(Some(2)));
        assert!(frame_at(&[255, 0, 0, 0]).is_err());
    }
}
