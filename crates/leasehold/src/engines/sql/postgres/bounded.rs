//! A bound on what a server may send. tokio-postgres itself takes messages of 1 GiB, and any number of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The longest message that is taken.
const MESSAGE: u64 = 16 << 20;

/// The longest answer: a look at every line has one row for each claim.
const ANSWER: u64 = 256 << 20;

/// The size of the head of a message: its kind, and its length without the kind.
const HEAD: usize = 5;

/// Reads the heads of messages as they pass.
#[derive(Debug, Default)]
struct Meter {
    head: [u8; HEAD],
    /// How much of the head is known.
    known: usize,
    /// How much of the message is still to come.
    left: u64,
    /// How much of the answer has come.
    answer: u64,
}

impl Meter {
    fn pass(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.known < HEAD {
                self.head[self.known] = bytes[0];
                (self.known, bytes) = (self.known + 1, &bytes[1..]);
                if self.known == HEAD {
                    self.begin()?;
                }
            } else {
                let part = self.left.min(bytes.len() as u64);
                (self.left, bytes) = (self.left - part, &bytes[part as usize..]);
            }
            if self.known == HEAD && self.left == 0 {
                self.known = 0;
            }
        }
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        let [kind, length @ ..] = self.head;
        let length = u64::from(u32::from_be_bytes(length));
        // The length counts itself. A shorter one is senseless, and told by the parser.
        self.left = length.saturating_sub(4);
        self.answer = match kind {
            // Notices, notifications and settings come between answers, and are not kept.
            b'N' | b'A' | b'S' => self.answer,
            // Ready for the next query.
            b'Z' => 0,
            _ => self.answer + length,
        };
        if length > MESSAGE || self.answer > ANSWER {
            let what =
                "the server sends more than is taken: 16 MiB in a message, 256 MiB in an answer";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        Ok(())
    }
}

/// A stream from a server, without TLS or inside of it.
#[derive(Debug)]
pub(super) struct Bounded<S> {
    stream: S,
    meter: Meter,
}

impl<S> Bounded<S> {
    pub(super) fn new(stream: S) -> Self {
        let meter = Meter::default();
        Self { stream, meter }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        Poll::Ready(self.meter.pass(&buf.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Bounded<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.stream.channel_binding()
    }
}

/// TLS whose inside is bounded.
pub(super) struct BoundedTls<T>(pub(super) T);

impl<S, T> TlsConnect<S> for BoundedTls<T>
where
    T: TlsConnect<S>,
    T::Future: Send + 'static,
    T::Stream: 'static,
    T::Error: 'static,
{
    type Stream = Bounded<T::Stream>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Stream, T::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = self.0.connect(stream);
        Box::pin(async { connecting.await.map(Bounded::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, length: u32) -> Vec<u8> {
        let mut message = vec![kind];
        message.extend(length.to_be_bytes());
        message.resize(1 + length as usize, 0);
        message
    }

    #[test]
    fn heads_are_found_however_the_bytes_are_cut() {
        let all = [message(b'D', 4), message(b'D', 300), message(b'Z', 5)].concat();
        for size in [1, 2, 3, 5, 7, 300, 1000] {
            let mut meter = Meter::default();
            for part in all.chunks(size) {
                meter.pass(part).unwrap();
            }
            assert_eq!((meter.known, meter.left, meter.answer), (0, 0, 0), "{size}");
        }
    }

    #[test]
    fn a_long_message_and_a_long_answer_are_refused_and_a_long_row_of_answers_is_not() {
        let mut meter = Meter::default();
        assert!(meter.pass(b"D\x01\x00\x00\x01").is_err());
        assert!(Meter::default().pass(b"D\xff\xff\xff\xff").is_err());
        let row = message(b'D', 1 << 20);
        let (mut meter, mut taken) = (Meter::default(), 0);
        while meter.pass(&row).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 256);
        let mut meter = Meter::default();
        for _ in 0..1000 {
            meter.pass(&row).unwrap();
            meter.pass(&message(b'Z', 5)).unwrap();
            meter.pass(&message(b'A', 1 << 10)).unwrap();
        }
    }
}
