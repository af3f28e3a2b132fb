//! The bytes below a connection: TCP, TLS or a Unix socket.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::error::Trouble;
use crate::engines::tls::Tls;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Address {
    /// From `host`, `host:port`, `[v6]` or `[v6]:port`.
    pub(super) fn parse(text: &str, port: u16) -> Result<Self, Trouble> {
        let bad = || Trouble::Config(format!("{text:?} is not a host with a port"));
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => match rest.split_once(']').ok_or_else(bad)? {
                (host, "") => (host, port),
                (host, rest) => (
                    host,
                    number(rest.strip_prefix(':').ok_or_else(bad)?).ok_or_else(bad)?,
                ),
            },
            None => match text.rsplit_once(':') {
                Some((host, port)) => (host, number(port).ok_or_else(bad)?),
                None => (text, port),
            },
        };
        if host.is_empty() {
            return Err(bad());
        }
        Ok(Self::Tcp(host.to_owned(), port))
    }
}

fn number(text: &str) -> Option<u16> {
    text.parse().ok()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Bytes from a server, and to it.
pub(super) type Reading = Box<dyn AsyncRead + Unpin + Send>;
pub(super) type Writing = Box<dyn AsyncWrite + Unpin + Send>;

/// Opens a stream. The caller limits how long that may take.
pub(super) async fn open(
    address: &Address,
    tls: Option<&Tls>,
) -> Result<(Reading, Writing), Trouble> {
    let down =
        |error: std::io::Error| Trouble::Down(format!("{address} cannot be reached: {error}"));
    let (host, port) = match address {
        Address::Unix(path) => {
            let (reading, writing) = UnixStream::connect(path).await.map_err(down)?.into_split();
            return Ok((Box::new(reading), Box::new(writing)));
        }
        Address::Tcp(host, port) => (host.as_str(), *port),
    };
    let tcp = TcpStream::connect((host, port)).await.map_err(down)?;
    tcp.set_nodelay(true).map_err(down)?;
    let Some(tls) = tls else {
        let (reading, writing) = tcp.into_split();
        return Ok((Box::new(reading), Box::new(writing)));
    };
    let connected = tls.connect(host, tcp).await.map_err(|error| {
        // No certificate can be for such a host: asking again would not help.
        match error.kind() {
            ErrorKind::InvalidInput => Trouble::Config(format!("{host:?}: {error}")),
            _ => down(error),
        }
    });
    let (reading, writing) = tokio::io::split(connected?);
    Ok((Box::new(reading), Box::new(writing)))
}
