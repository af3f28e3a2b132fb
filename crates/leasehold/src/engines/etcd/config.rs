//! The configuration in an `etcd:` URL.

use std::fmt;
use std::time::Duration;

use crate::engine::{Host, Url};
use crate::engines::ordered::FenceFloor;
use crate::engines::tls::Tls;
use crate::error::{Error, ErrorKind, Result, Step};

/// One cluster, as a URL names it.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) hosts: Vec<Host>,
    /// What every key begins with.
    pub(super) prefix: String,
    login: Option<(String, String)>,
    pub(super) tls: Option<Tls>,
    /// The lease of the first session, before a claim has named its own.
    pub(super) lease: Duration,
    /// What fences are counted from.
    pub(super) fence_floor: FenceFloor,
}

/// The port of a host without one.
const PORT: u16 = 2379;

/// The lease of locks that set none.
const LEASE: Duration = Duration::from_secs(10);

impl Config {
    pub(super) fn from_url(url: &Url) -> Result<Self> {
        if url.hosts().is_empty() {
            return Err(bad("no host: write etcd://HOST:PORT,HOST:PORT"));
        }
        if !matches!(url.path(), "" | "/") {
            return Err(bad(
                "keys of etcd are no paths: write ?prefix=TEXT, which comes before every name as it is",
            ));
        }
        let mut params = url.params();
        let prefix = params.take("prefix").unwrap_or_default();
        let fence_floor = FenceFloor::of(&mut params).map_err(|what| bad(&what))?;
        let tls = Tls::of(&mut params, url.scheme() == "etcds");
        let tls = tls.map_err(|what| bad(&what))?;
        params.finish()?;
        let login = match (url.user(), url.password()) {
            (Some(user), Some(password)) => Some((user.to_owned(), password.to_owned())),
            (None, None) => None,
            _ => return Err(bad("a login is USER:PASSWORD@, with both")),
        };
        Ok(Self {
            hosts: url.addresses(PORT)?,
            prefix,
            login,
            tls: tls.map(|tls| tls.speaking(b"h2")),
            lease: LEASE,
            fence_floor,
        })
    }

    /// A key of our own, after the prefix.
    pub(super) fn key(&self, rest: &str) -> Vec<u8> {
        format!("{}{rest}", self.prefix).into_bytes()
    }

    pub(super) fn login(&self) -> Option<(&str, &str)> {
        let (user, password) = self.login.as_ref()?;
        Some((user, password))
    }

    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Without secrets.
    pub(super) fn location(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(Host::to_string).collect();
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        let prefix = match &*self.prefix {
            "" => String::new(),
            prefix => format!("?prefix={prefix}"),
        };
        format!("{scheme}://{}{prefix}", hosts.join(","))
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location())
    }
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::Config, Step::Connect, what).on("etcd")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(&Url::parse(url).unwrap())
    }

    #[test]
    fn takes_hosts_prefix_and_login() {
        let config = config("etcd://me:hunter2@h1:1,h2,[::1]/?prefix=/locks/").unwrap();
        assert_eq!(config.login(), Some(("me", "hunter2")));
        assert_eq!(config.key("x"), b"/locks/x");
        let shown = "etcd://h1:1,h2:2379,[::1]:2379?prefix=/locks/";
        assert_eq!(format!("{config:?}"), shown);
    }

    #[test]
    fn a_scheme_or_an_option_asks_for_tls() {
        for url in ["etcds://h", "etcd://h?tls=1"] {
            let config = config(url).unwrap();
            assert_eq!(config.location(), "etcds://h:2379");
        }
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for url in [
            "etcd:",
            "etcd://h/path",
            "etcd://h?x=1",
            "etcd://h?fence_floor=much",
            "etcd://me@h",
            "etcd://h?ca=x",
            "etcds://h?key=x",
            "etcds://h?ca=/nowhere",
        ] {
            assert_eq!(config(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }
}
