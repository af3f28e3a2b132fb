//! The configuration in a `zookeeper:` URL.

use std::fmt;
use std::time::Duration;

use crate::engine::{Host, Params, Url};
use crate::engines::ordered::FenceFloor;
use crate::engines::tls::Tls;
use crate::error::{Error, ErrorKind, Result, Step};

/// The access list of the nodes that are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Every client; Curator's default.
    Anyone,
    /// Clients with the same login.
    Creator,
}

impl Access {
    fn of(params: &mut Params, login: bool) -> Result<Self> {
        match params.take("acl").as_deref() {
            None | Some("anyone") => Ok(Self::Anyone),
            Some("creator") if login => Ok(Self::Creator),
            Some("creator") => Err(bad("acl=creator needs a login: say auth=")),
            Some(_) => Err(bad(
                "acl has an unknown value: write acl=anyone or acl=creator",
            )),
        }
    }
}

/// One deployment, as a URL names it.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) hosts: Vec<Host>,
    root: String,
    auth: Option<(String, String)>,
    access: Access,
    pub(super) tls: Option<Tls>,
    /// The lease of the first session, before a claim has named its own.
    pub(super) lease: Duration,
    /// The longest frame that is taken from a server, in bytes.
    pub(super) frame_cap: usize,
    /// What fences are counted from.
    pub(super) fence_floor: FenceFloor,
}

/// The port of a host without one.
const PORT: u16 = 2181;

/// The lease of locks that set none.
const LEASE: Duration = Duration::from_secs(10);

/// ZooKeeper's own default of `jute.maxbuffer`.
const FRAME_CAP: usize = 1024 * 1024;

impl Config {
    pub(super) fn from_url(url: &Url) -> Result<Self> {
        if url.hosts().is_empty() {
            return Err(bad("no host: write zookeeper://HOST:PORT,HOST:PORT/PATH"));
        }
        let mut params = url.params();
        let login = url.user().map(|user| {
            let password = url.password().unwrap_or("");
            ("digest".to_owned(), format!("{user}:{password}"))
        });
        let auth = match params.take("auth") {
            None => login,
            Some(auth) => match auth.split_once(':') {
                Some((scheme, secret)) => Some((scheme.to_owned(), secret.to_owned())),
                None => return Err(bad("auth is SCHEME:SECRET, as in digest:user:password")),
            },
        };
        let access = Access::of(&mut params, auth.is_some())?;
        let frame_cap = match params.take("jute.maxbuffer").map(|cap| cap.parse()) {
            None => FRAME_CAP,
            Some(Ok(cap)) if cap >= 1024 => cap,
            Some(_) => return Err(bad("jute.maxbuffer is a number of bytes, at least 1024")),
        };
        let fence_floor = FenceFloor::of(&mut params).map_err(|what| bad(&what))?;
        let tls = Tls::of(&mut params, false).map_err(|what| bad(&what))?;
        params.finish()?;
        let root = url.path().trim_end_matches('/').to_owned();
        if root.contains("//") || root.split('/').any(|part| matches!(part, "." | "..")) {
            return Err(bad("the path has a part that ZooKeeper does not allow"));
        }
        Ok(Self {
            hosts: url.addresses(PORT)?,
            root,
            auth,
            access,
            tls,
            lease: LEASE,
            frame_cap,
            fence_floor,
        })
    }

    /// The node below which the names are; empty for the root.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    pub(super) fn auth(&self) -> Option<(&str, &str)> {
        let (scheme, secret) = self.auth.as_ref()?;
        Some((scheme, secret))
    }

    pub(super) fn tls(&self) -> Option<Tls> {
        self.tls.clone()
    }

    pub(super) const fn access(&self) -> Access {
        self.access
    }

    /// Without secrets.
    pub(super) fn location(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(Host::to_string).collect();
        format!("zookeeper://{}{}", hosts.join(","), self.root)
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location())
    }
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::Config, Step::Connect, what).on("zookeeper")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Result<Config> {
        Config::from_url(&Url::parse(url).unwrap())
    }

    #[test]
    fn takes_hosts_root_and_login() {
        let config = config("zookeeper://me:hunter2@h1:1,h2:2/locks/?acl=creator").unwrap();
        assert_eq!(config.auth(), Some(("digest", "me:hunter2")));
        assert_eq!(config.access(), Access::Creator);
        assert_eq!(format!("{config:?}"), "zookeeper://h1:1,h2:2/locks");
    }

    #[test]
    fn a_host_has_a_port() {
        let config = config("zookeeper://h1:1,h2,[::1],[::1]:7").unwrap();
        let all = "zookeeper://h1:1,h2:2181,[::1]:2181,[::1]:7";
        assert_eq!(config.location(), all);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for url in [
            "zookeeper:",
            "zookeeper://h/?acl=creator",
            "zookeeper://h/?acl=x",
            "zookeeper://h/?auth=x",
            "zookeeper://h/?x=1",
            "zookeeper://h/?jute.maxbuffer=1",
            "zookeeper://h/?jute.maxbuffer=much",
            "zookeeper://h/?fence_floor=-1",
            "zookeeper://h/a//b",
            "zookeeper://h/?tls=perhaps",
            "zookeeper://h/?ca=x",
            "zookeeper://h/?tls=1&key=x",
            "zookeeper://h/?tls=1&ca=/nowhere",
        ] {
            assert_eq!(config(url).unwrap_err().kind(), ErrorKind::Config, "{url}");
        }
    }
}
