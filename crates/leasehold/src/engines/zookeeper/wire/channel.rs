//! The two directions of a connection, in the clear or through TLS.
//!
//! Requests are written without waiting, under the lock of those who ask. So TLS is fed by hand here: what it makes of
//! a request is kept in it until the connection takes it.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Arc, MutexGuard};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::rustls::ClientConnection;

use crate::engines::tls::Tls;
use crate::sync::Shared;

type Secured = Option<Arc<Shared<ClientConnection>>>;

/// Bytes from the server.
pub(super) struct Reading {
    half: OwnedReadHalf,
    tls: Secured,
}

/// Bytes to the server.
pub(super) struct Writing {
    half: OwnedWriteHalf,
    tls: Secured,
}

/// Opens a connection. The caller limits how long that may take.
pub(super) async fn open(address: &str, tls: Option<&Tls>) -> io::Result<(Reading, Writing)> {
    let tcp = TcpStream::connect(address).await?;
    // Of requests that leave together the second must not wait for the answer to the first.
    tcp.set_nodelay(true)?;
    Ok(match tls {
        None => halves(tcp, None),
        Some(tls) => {
            let (tcp, secured) = tls.connect(host(address), tcp).await?.into_inner();
            halves(tcp, Some(Arc::new(Shared::from(secured))))
        }
    })
}

pub(super) fn halves(tcp: TcpStream, tls: Secured) -> (Reading, Writing) {
    let (reading, writing) = tcp.into_split();
    let reading = Reading {
        half: reading,
        tls: tls.clone(),
    };
    (reading, Writing { half: writing, tls })
}

/// The host of an address, as its certificate says it.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

impl Reading {
    /// Reads some; says how much, nought at the end. Dropped, nothing is lost.
    pub(super) async fn read(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return self.half.read_buf(into).await;
        };
        let mut ended = false;
        loop {
            let some = understand(tls.lock(), into)?;
            if some > 0 || ended {
                return Ok(some);
            }
            self.half.readable().await?;
            match tls.lock().read_tls(&mut Now(&self.half)) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => ended = read? == 0,
            }
        }
    }
}

/// Takes out what can be understood by now.
fn understand(mut tls: MutexGuard<'_, ClientConnection>, into: &mut Vec<u8>) -> io::Result<usize> {
    let state = tls.process_new_packets();
    let state = state.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    let there = state.plaintext_bytes_to_read();
    tls.reader().take(there as u64).read_to_end(into)
}

impl Writing {
    /// Writes some without waiting.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return self.half.try_write(bytes);
        };
        // First what is there, so that it never grows beyond what is written at once.
        self.flush()?;
        match tls.lock().writer().write(bytes)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            some => Ok(some),
        }
    }

    /// Writes what TLS has made of it, without waiting.
    pub(super) fn flush(&self) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Ok(()) };
        let mut tls = tls.lock();
        while tls.wants_write() {
            let _ = tls.write_tls(&mut Now(&self.half))?;
        }
        Ok(())
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.half.writable().await
    }
}

/// A half that does not wait.
struct Now<'a, T>(&'a T);

impl Read for Now<'_, OwnedReadHalf> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(into)
    }
}

impl Write for Now<'_, OwnedWriteHalf> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_neither_port_nor_brackets() {
        assert_eq!(host("h:1"), "h");
        assert_eq!(host("[::1]:2181"), "::1");
    }
}
