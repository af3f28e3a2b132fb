//! One connection to an agent: TCP, TLS or a Unix socket, with HTTP/1.1 on it.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::engine::Host;
use crate::engines::consul::config::{Config, Place};

/// What requests are sent to.
pub(super) type Sender = SendRequest<Full<Bytes>>;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);

/// Connects to the agent of this number, counted round.
pub(super) async fn connect(config: &Config, number: usize) -> io::Result<Sender> {
    let connecting = async {
        match &config.place {
            Place::Unix(path) => unix(path).await,
            Place::Hosts(hosts) => {
                let Host { name, port } = &hosts[number % hosts.len()];
                let tcp = TcpStream::connect((name.as_str(), *port)).await?;
                tcp.set_nodelay(true)?;
                match &config.tls {
                    None => greet(tcp).await,
                    Some(tls) => {
                        let server = config.server_name.as_deref().unwrap_or(name);
                        greet(tls.connect(server, tcp).await?).await
                    }
                }
            }
        }
    };
    let connected = tokio::time::timeout(CONNECT, connecting).await;
    connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(unix)]
async fn unix(path: &Path) -> io::Result<Sender> {
    greet(tokio::net::UnixStream::connect(path).await?).await
}

#[cfg(not(unix))]
async fn unix(path: &Path) -> io::Result<Sender> {
    let what = format!("{}: this system has no Unix sockets", path.display());
    Err(io::Error::new(io::ErrorKind::Unsupported, what))
}

#[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
async fn greet<S>(stream: S) -> io::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    drop(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::trace!(%error, "a connection to Consul ended");
        }
    }));
    Ok(sender)
}
