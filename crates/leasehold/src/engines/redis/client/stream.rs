//! The bytes below a connection: TCP, TLS or a Unix socket.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::super::error::Trouble;
use crate::engine::Host;
use crate::engines::tls::Tls;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) enum Address {
    Tcp(Host),
    Unix(PathBuf),
}

/// One of the places that an address stands for.
#[derive(Debug, Clone)]
pub(super) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// Every place this address stands for, in the order of the resolver.
    pub(super) async fn endpoints(&self) -> io::Result<Vec<Endpoint>> {
        match self {
            Self::Unix(path) => Ok(vec![Endpoint::Unix(path.clone())]),
            Self::Tcp(host) => {
                let found = tokio::net::lookup_host((host.name.as_str(), host.port)).await?;
                Ok(found.map(Endpoint::Tcp).collect())
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host) => host.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Bytes from a server, and to it.
pub(super) type Reading = Box<dyn AsyncRead + Unpin + Send>;
pub(super) type Writing = Box<dyn AsyncWrite + Unpin + Send>;

/// The kernel asks a peer that says nothing for so long whether it is there, this often, and gives up after three questions.
const KEEPALIVE: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(5)];

/// Opens a stream. The caller limits how long that may take.
pub(super) async fn open(
    endpoint: Endpoint,
    address: &Address,
    tls: Option<&Tls>,
) -> Result<(Reading, Writing), Trouble> {
    let down = |error: io::Error| Trouble::Down(error.to_string());
    let tcp = match endpoint {
        Endpoint::Unix(path) => return unix(path).await.map_err(down),
        Endpoint::Tcp(place) => TcpStream::connect(place).await.map_err(down)?,
    };
    tcp.set_nodelay(true).map_err(down)?;
    keep_alive(&tcp).map_err(down)?;
    let (Some(tls), Address::Tcp(host)) = (tls, address) else {
        let (reading, writing) = tcp.into_split();
        return Ok((Box::new(reading), Box::new(writing)));
    };
    let connected = tls.connect(&host.name, tcp).await.map_err(|error| {
        // No certificate can be for such a host: asking again would not help.
        match error.kind() {
            ErrorKind::InvalidInput => Trouble::Config(format!("{:?}: {error}", host.name)),
            _ => Trouble::Down(format!("TLS: {error}")),
        }
    });
    let (reading, writing) = tokio::io::split(connected?);
    Ok((Box::new(reading), Box::new(writing)))
}

#[cfg(unix)]
async fn unix(path: PathBuf) -> io::Result<(Reading, Writing)> {
    let stream = tokio::net::UnixStream::connect(path).await?;
    let (reading, writing) = stream.into_split();
    Ok((Box::new(reading), Box::new(writing)))
}

#[cfg(not(unix))]
async fn unix(path: PathBuf) -> io::Result<(Reading, Writing)> {
    let what = format!("{}: this system has no Unix sockets", path.display());
    Err(io::Error::new(ErrorKind::Unsupported, what))
}

fn keep_alive(tcp: &TcpStream) -> io::Result<()> {
    let [idle, between] = KEEPALIVE;
    let often = TcpKeepalive::new().with_time(idle).with_interval(between);
    SockRef::from(tcp).set_tcp_keepalive(&often.with_retries(3))
}
