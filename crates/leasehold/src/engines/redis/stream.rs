//! The bytes below a connection: TCP, TLS or a Unix socket.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

use super::error::Trouble;

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

/// What is trusted, and who we are to the server.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Trusts the certificates of a file, or the usual authorities without one.
    pub(super) fn new(
        authorities: Option<&Path>,
        certificate: Option<(&Path, &Path)>,
    ) -> Result<Self, Trouble> {
        let mut roots = RootCertStore::empty();
        match authorities {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                for authority in certificates(path)? {
                    roots
                        .add(authority)
                        .map_err(|error| unusable(path, &error))?;
                }
            }
        }
        // Named here: a program with two providers would otherwise have to install one.
        let provider = Arc::new(ring::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| Trouble::Config(error.to_string()))?;
        let builder = builder.with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let secret =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
                let built = builder.with_client_auth_cert(certificates(certificate)?, secret);
                built.map_err(|error| unusable(certificate, &error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Trouble> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it has no certificate"));
    }
    Ok(found)
}

fn unusable(path: &Path, why: &dyn fmt::Display) -> Trouble {
    Trouble::Config(format!("{} cannot be used: {why}", path.display()))
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
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
    let Some(Tls(config)) = tls else {
        let (reading, writing) = tcp.into_split();
        return Ok((Box::new(reading), Box::new(writing)));
    };
    let name = ServerName::try_from(host.to_owned());
    let name = name.map_err(|error| Trouble::Config(format!("{host:?}: {error}")))?;
    let connected = TlsConnector::from(config.clone()).connect(name, tcp).await;
    let (reading, writing) = tokio::io::split(connected.map_err(down)?);
    Ok((Box::new(reading), Box::new(writing)))
}
