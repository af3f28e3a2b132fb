//! One connection to one server: its stream, its frames, and whether the server is silent.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::codec::{Frame, Frames};
use super::error::{Answer, Trouble};
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
