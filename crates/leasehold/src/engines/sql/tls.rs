//! How a connection to a server is protected: the same option for every server.

use std::path::PathBuf;
#[cfg(feature = "postgres")]
use std::sync::Arc;

use crate::engine::{Host, Params, Url};
use crate::error::{Error, ErrorKind, Result, Step};

/// Whether and against what a server's certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Security {
    Off,
    /// TLS, with the usual public roots or those of a file.
    Verified(Option<PathBuf>),
}

impl Security {
    /// `sslmode=disable` or `verify-full`; without it TLS is used except to this machine itself.
    pub(super) fn of(url: &Url, params: &mut Params) -> Result<Self> {
        let roots = params.take("sslrootcert").map(PathBuf::from);
        let here = url.addresses(0)?.iter().all(Host::is_this_machine);
        match params.take("sslmode").as_deref() {
            Some("disable") => Ok(Self::Off),
            None if roots.is_none() && here => Ok(Self::Off),
            None | Some("verify-full") => Ok(Self::Verified(roots)),
            Some(_) => {
                let what = "sslmode is disable or verify-full";
                Err(Error::new(ErrorKind::Config, Step::Connect, what))
            }
        }
    }

    /// The settings of rustls, with a provider of our own: the program may have chosen none, or another.
    #[cfg(feature = "postgres")]
    pub(super) fn rustls(&self) -> Result<rustls::ClientConfig, String> {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject;

        let mut roots = rustls::RootCertStore::empty();
        match self {
            Self::Verified(Some(file)) => {
                let unreadable = |error| format!("{}: {error}", file.display());
                for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
                    let certificate = certificate.map_err(unreadable)?;
                    roots.add(certificate).map_err(|error| error.to_string())?;
                }
            }
            _ => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn security(url: &str) -> Security {
        let url = Url::parse(url).unwrap();
        Security::of(&url, &mut url.params()).unwrap()
    }

    #[test]
    fn tls_is_left_out_only_to_this_machine() {
        for url in [
            "mysql://localhost/d",
            "mysql://127.0.0.1:1/d",
            "mysql://[::1]/d",
        ] {
            assert_eq!(security(url), Security::Off, "{url}");
        }
        for url in [
            "mysql://localhost.example.com/d",
            "mysql://127.example.com/d",
            "postgres://localhost,127.0.0.1.example.com/d",
            "postgres://127.0.0.1,10.0.0.1/d",
        ] {
            assert_eq!(security(url), Security::Verified(None), "{url}");
        }
        assert_eq!(security("mysql://h/d?sslmode=disable"), Security::Off);
    }
}
