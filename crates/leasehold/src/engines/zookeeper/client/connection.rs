//! One connection to one server: its stream, its frames, and whether the server is silent.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::codec::{Frame, Frames};
use super::error::{Answer, Trouble};
use super::mux::Traffic;
use crate::engines::tls::Tls;

/// A connection, by direction.
pub(super) struct Connection {
    pub(super) reading: Reading,
    pub(super) writing: Writing,
}

pub(super) struct Reading {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) frames: Frames,
}

pub(super) struct Writing {
    stream: Box<dyn AsyncWrite + Send + Unpin>,
    bytes: Vec<u8>,
    written: usize,
    flushed: bool,
}

impl Connection {
    /// Opens a connection; `host` is the name that a certificate must be for. The caller limits how long it may take.
    pub(super) async fn open(
        host: &str,
        address: SocketAddr,
        tls: Option<&Tls>,
        cap: usize,
    ) -> io::Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        // Two requests are sent together: the second must not wait for the answer to the first.
        tcp.set_nodelay(true)?;
        Ok(match tls {
            None => {
                let (reading, writing) = tcp.into_split();
                Self::of(reading, writing, cap)
            }
            Some(tls) => {
                let (reading, writing) = tokio::io::split(tls.connect(host, tcp).await?);
                Self::of(reading, writing, cap)
            }
        })
    }

    fn of(
        reading: impl AsyncRead + Send + Unpin + 'static,
        writing: impl AsyncWrite + Send + Unpin + 'static,
        cap: usize,
    ) -> Self {
        Self {
            reading: Reading {
                stream: Box::new(reading),
                frames: Frames::new(cap),
            },
            writing: Writing {
                stream: Box::new(writing),
                bytes: Vec::new(),
                written: 0,
                flushed: true,
            },
        }
    }

    pub(super) async fn send(&mut self, bytes: Vec<u8>) -> Answer<()> {
        self.writing.push(bytes);
        self.writing.write().await
    }

    /// The next frame of a greeting. A server of another protocol is recognised by its length.
    pub(super) async fn frame(&mut self) -> Answer<Vec<u8>> {
        loop {
            match self.reading.frames.next().map_err(|_| stranger())? {
                Some(Frame { bytes, cut: None }) => return Ok(bytes),
                Some(Frame { cut: Some(_), .. }) => return Err(stranger()),
                None => self.reading.read().await?,
            }
        }
    }
}

impl Reading {
    /// Reads some bytes. Dropped, it has read nothing.
    pub(super) async fn read(&mut self) -> Answer<()> {
        match self.stream.read_buf(self.frames.room()).await {
            Ok(0) => Err(Trouble::Unknown(
                "the server closed the connection".to_owned(),
            )),
            Ok(_) => Ok(()),
            Err(error) => Err(broken(&error)),
        }
    }
}

impl Writing {
    pub(super) fn push(&mut self, bytes: Vec<u8>) {
        match self.is_done() {
            true => (self.bytes, self.written) = (bytes, 0),
            false => self.bytes.extend(bytes),
        }
        self.flushed = false;
    }

    pub(super) fn is_done(&self) -> bool {
        self.flushed
    }

    /// Writes everything. Dropped, it goes on where it was.
    pub(super) async fn write(&mut self) -> Answer<()> {
        while self.written < self.bytes.len() {
            let rest = &self.bytes[self.written..];
            match self.stream.write(rest).await {
                Ok(0) => return Err(broken(&io::ErrorKind::WriteZero.into())),
                Ok(some) => self.written += some,
                Err(error) => return Err(broken(&error)),
            }
        }
        self.stream.flush().await.map_err(|error| broken(&error))?;
        self.flushed = true;
        Ok(())
    }
}

pub(super) fn broken(error: &io::Error) -> Trouble {
    Trouble::Unknown(error.to_string())
}

fn stranger() -> Trouble {
    Trouble::Unknown("its answer is not ZooKeeper's protocol: is this the port of another service, or one for TLS?".to_owned())
}

/// How many ticks in a row nothing was sent, and nothing arrived that was due.
#[derive(Default)]
pub(super) struct Silence {
    ours: u32,
    theirs: u32,
    /// Whether a ping is unanswered.
    pinged: bool,
}

impl Silence {
    /// Whether the server has been silent for three ticks although an answer was due.
    pub(super) fn is_too_long(&mut self, since: &Traffic) -> bool {
        self.pinged &= !since.received;
        self.theirs = match since.received || !(since.unanswered || self.pinged) {
            true => 0,
            false => self.theirs + 1,
        };
        self.theirs > 2
    }

    /// Whether to ping now.
    pub(super) fn wants_a_ping(&mut self, since: &Traffic) -> bool {
        self.ours = if since.sent { 0 } else { self.ours + 1 };
        let wants = self.ours > 1 && !self.pinged;
        self.pinged |= wants;
        wants
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(sent: bool, received: bool, unanswered: bool) -> Traffic {
        Traffic {
            sent,
            received,
            unanswered,
        }
    }

    #[test]
    fn an_idle_server_is_pinged_and_a_silent_one_is_given_up() {
        let (quiet, answered) = (since(false, false, false), since(false, true, false));
        let mut silence = Silence::default();
        let mut tick = |since: &Traffic| (silence.is_too_long(since), silence.wants_a_ping(since));
        assert_eq!(tick(&since(true, true, false)), (false, false));
        assert_eq!(tick(&quiet), (false, false), "no answer is due");
        assert_eq!(tick(&quiet), (false, true));
        assert_eq!(tick(&answered), (false, true), "and again");
        assert_eq!(tick(&quiet), (false, false));
        assert_eq!(tick(&quiet), (false, false));
        assert_eq!(tick(&quiet), (true, false));
        let mut silence = Silence::default();
        let asked = since(true, false, true);
        let given_up: Vec<_> = (0..3).map(|_| silence.is_too_long(&asked)).collect();
        assert_eq!(given_up, [false, false, true]);
    }
}
