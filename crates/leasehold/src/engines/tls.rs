//! TLS for engines that open their own connections.

use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

#[cfg(any(feature = "redis", feature = "zookeeper", feature = "etcd"))]
use crate::engine::Params;

/// The authorities that are trusted, and the certificate shown to the server.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

impl Tls {
    /// Reads `tls`, `ca`, `cert` and `key`; none without TLS. The scheme may ask for it as well.
    #[cfg(any(feature = "redis", feature = "zookeeper", feature = "etcd"))]
    pub(super) fn of(params: &mut Params, scheme: bool) -> Result<Option<Self>, String> {
        let wanted = params.flag("tls")? || scheme;
        let [ca, cert, key] = ["ca", "cert", "key"].map(|name| params.take(name));
        if !wanted {
            return match ca.or(cert).or(key) {
                None => Ok(None),
                Some(_) => Err("ca, cert and key are for TLS: say tls=1 too".to_owned()),
            };
        }
        let own = match (&cert, &key) {
            (Some(cert), Some(key)) => Some((Path::new(cert), Path::new(key))),
            (None, None) => None,
            _ => return Err("cert and key are a pair: give both, or neither".to_owned()),
        };
        Self::new(ca.as_deref().map(Path::new), own).map(Some)
    }

    /// A configuration of the program's own.
    pub(super) const fn from(config: Arc<ClientConfig>) -> Self {
        Self(config)
    }

    /// Offers this protocol to the server when greeting it.
    #[cfg(feature = "etcd")]
    pub(super) fn speaking(&self, protocol: &[u8]) -> Self {
        let mut config = ClientConfig::clone(&self.0);
        config.alpn_protocols = vec![protocol.to_vec()];
        Self(Arc::new(config))
    }

    /// Greets a server, which must have a certificate for this host.
    pub(super) async fn connect(
        &self,
        host: &str,
        tcp: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        TlsConnector::from(self.0.clone()).connect(name, tcp).await
    }

    /// Trusts the certificates of a file, or the usual authorities without one.
    pub(super) fn new(
        authorities: Option<&Path>,
        certificate: Option<(&Path, &Path)>,
    ) -> Result<Self, String> {
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
        let builder = builder.map_err(|error| error.to_string())?;
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

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(
            path,
            &"there is no certificate in it; a PEM file is expected",
        ));
    }
    Ok(found)
}

fn unusable(path: &Path, why: &dyn fmt::Display) -> String {
    format!("{} cannot be used: {why}", path.display())
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}
