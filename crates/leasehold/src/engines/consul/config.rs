//! The configuration in a `consul:` URL, and in Consul's environment variables where the URL is silent.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::shared::Layout;
use crate::engine::{Host, Params, Url};
use crate::engines::ordered::FenceFloor;
use crate::engines::tls::Tls;
use crate::error::{Error, ErrorKind, Result, Step};

/// Where the agents are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Hosts(Vec<Host>),
    Unix(PathBuf),
}

/// One deployment, as a URL and the environment name it.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) place: Place,
    pub(super) tls: Option<Tls>,
    /// The name in the server's certificate, if it is not the host's.
    pub(super) server_name: Option<String>,
    token: Option<String>,
    /// Namespace, partition and datacenter, as options of a request.
    pub(super) scope: String,
    /// The start of every key, without a slash at its end.
    pub(super) prefix: String,
    /// Whether a session ends when gossip takes its agent's node for dead.
    pub(super) serf: bool,
    /// Where the keys of Consul's own locks are, with `layout=consul`.
    pub(super) shared: Option<Layout>,
    /// How many of those locks a client holds or waits for at most.
    pub(super) locks: usize,
    /// The lease of the first session, before a claim has named its own.
    pub(super) lease: Duration,
    /// What fences are counted from.
    pub(super) fence_floor: FenceFloor,
}

/// The port of a host without one.
const PORT: u16 = 8500;

/// The prefix of a URL without a path.
const PREFIX: &str = "leasehold";

/// Of the 200 connections that an agent takes of one address unless it is told otherwise, so many may wait for changes of
/// locks of `consul lock`: the others are for renewals, and for other processes.
const LOCKS: usize = 128;

/// The lease of locks that set none.
const LEASE: Duration = Duration::from_secs(10);

/// Reads a variable of the environment; none if it is empty.
type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Config {
    pub(super) fn from_url(url: &Url) -> Result<Self> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::read(url, &env).map_err(|what| bad(&what))
    }

    fn read(url: &Url, env: Env<'_>) -> Result<Self, String> {
        let mut params = url.params();
        let unix = url.scheme() == "consul+unix";
        let (place, env_tls) = match unix {
            true => (Place::Unix(url.path().into()), false),
            false => place(url, env)?,
        };
        let prefix = match unix {
            true => params.take("prefix"),
            false => Some(url.path().trim_matches('/').to_owned()),
        };
        let path = prefix.unwrap_or_default();
        let prefix = prefix_of(&path)?;
        let wants_tls = url.scheme() == "consuls" || env_tls || params.flag("tls")?;
        let server_name = params
            .take("server_name")
            .or_else(|| env("CONSUL_TLS_SERVER_NAME"));
        let serf = match params.take("checks").as_deref() {
            None | Some("none") => false,
            Some("serf") => true,
            Some(_) => return Err("checks is none or serf".to_owned()),
        };
        let shared = shared(&mut params, &path)?;
        let locks = match params.take("locks").map(|text| text.parse()) {
            None => LOCKS,
            Some(Ok(_)) if shared.is_none() => {
                return Err("locks is for the locks of `consul lock`: add layout=consul".to_owned());
            }
            Some(Ok(number)) if number > 0 => number,
            Some(_) => return Err("locks is a number above 0".to_owned()),
        };
        let config = Self {
            place,
            tls: tls(&mut params, wants_tls, env)?,
            server_name,
            token: token(url, &mut params, env)?,
            scope: scope(&mut params, env),
            prefix,
            serf,
            shared,
            locks,
            lease: LEASE,
            fence_floor: FenceFloor::of(&mut params)?,
        };
        params
            .finish()
            .map_err(|error| error.message().to_owned())?;
        Ok(config)
    }

    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// What the `Host` of a request says.
    pub(super) fn host(&self) -> String {
        match &self.place {
            Place::Hosts(hosts) => hosts[0].to_string(),
            Place::Unix(_) => "localhost".to_owned(),
        }
    }

    /// The ACL rule that a request for this path needs.
    pub(super) fn rule(&self, path: &str) -> String {
        if path.starts_with("session") {
            return r#"session_prefix "" { policy = "write" }"#.to_owned();
        }
        let own = format!(r#"key_prefix "{}/" {{ policy = "write" }}"#, self.prefix);
        match &self.shared {
            // The keys of names are beside those of our own.
            Some(layout) if layout.start.is_empty() => {
                format!(
                    r#"key_prefix "NAME" {{ policy = "write" }} for the name of the lock, and {own}"#
                )
            }
            _ => own,
        }
    }

    /// Where the keys of locks are.
    fn start(&self) -> &str {
        match &self.shared {
            Some(layout) => layout.start.trim_end_matches('/'),
            None => &self.prefix,
        }
    }

    /// Without secrets.
    pub(super) fn location(&self) -> String {
        match &self.place {
            Place::Unix(path) => {
                let layout = self.shared.as_ref().map_or("", |_| "&layout=consul");
                format!(
                    "consul+unix:{}?prefix={}{layout}",
                    path.display(),
                    self.start()
                )
            }
            Place::Hosts(hosts) => {
                let scheme = if self.tls.is_some() {
                    "consuls"
                } else {
                    "consul"
                };
                let hosts: Vec<_> = hosts.iter().map(Host::to_string).collect();
                let layout = self.shared.as_ref().map(|_| "layout=consul");
                let scope = Some(&*self.scope).filter(|scope| !scope.is_empty());
                let options: Vec<_> = layout.into_iter().chain(scope).collect();
                let options = match options.is_empty() {
                    true => String::new(),
                    false => format!("?{}", options.join("&")),
                };
                format!("{scheme}://{}/{}{options}", hosts.join(","), self.start())
            }
        }
    }
}

/// The start of every key, for this path.
fn prefix_of(path: &str) -> Result<String, String> {
    let prefix = match path {
        "" => PREFIX,
        path => path,
    };
    match prefix
        .split('/')
        .any(|part| matches!(part, "" | "." | ".."))
    {
        true => Err("the path has a part that is empty, . or ..: write consul://HOST/a/b".into()),
        false => Ok(prefix.to_owned()),
    }
}

/// Where the agents are, and whether the environment asks for TLS there.
fn place(url: &Url, env: Env<'_>) -> Result<(Place, bool), String> {
    let ssl = env("CONSUL_HTTP_SSL");
    let ssl = ssl.is_some_and(|ssl| matches!(ssl.as_str(), "1" | "t" | "true" | "TRUE" | "True"));
    if !url.hosts().is_empty() {
        let hosts = url
            .addresses(PORT)
            .map_err(|error| error.message().to_owned())?;
        // The URL names the scheme: the environment does not turn plain HTTP into TLS behind it.
        return Ok((Place::Hosts(hosts), false));
    }
    let address = env("CONSUL_HTTP_ADDR").unwrap_or_else(|| "127.0.0.1".to_owned());
    if let Some(path) = address.strip_prefix("unix://") {
        return Ok((Place::Unix(path.into()), false));
    }
    let (address, tls) = match address.split_once("://") {
        Some(("http", address)) => (address, ssl),
        Some(("https", address)) => (address, true),
        Some(_) => {
            return Err("CONSUL_HTTP_ADDR is HOST:PORT, http://, https:// or unix://".to_owned());
        }
        None => (address.as_str(), ssl),
    };
    let host = Host::parse(address.trim_end_matches('/'), PORT);
    let host = host.map_err(|what| format!("CONSUL_HTTP_ADDR: {what}"))?;
    Ok((Place::Hosts(vec![host]), tls))
}

fn tls(params: &mut Params, wanted: bool, env: Env<'_>) -> Result<Option<Tls>, String> {
    let [ca, cert, key] = ["ca", "cert", "key"].map(|name| params.take(name));
    if !wanted {
        return match ca.or(cert).or(key) {
            None => Ok(None),
            Some(_) => Err("ca, cert and key are for TLS: write consuls://".to_owned()),
        };
    }
    let verify = env("CONSUL_HTTP_SSL_VERIFY");
    if verify
        .is_some_and(|verify| matches!(verify.as_str(), "0" | "f" | "false" | "FALSE" | "False"))
    {
        return Err(
            "CONSUL_HTTP_SSL_VERIFY=false is not supported: name the server's authority in ca= or CONSUL_CACERT"
                .to_owned(),
        );
    }
    let ca = ca.or_else(|| env("CONSUL_CACERT"));
    let (cert, key) = match (cert, key) {
        (None, None) => (env("CONSUL_CLIENT_CERT"), env("CONSUL_CLIENT_KEY")),
        own => own,
    };
    let own = match (&cert, &key) {
        (Some(cert), Some(key)) => Some((Path::new(cert), Path::new(key))),
        (None, None) => None,
        _ => return Err("cert and key are a pair: give both, or neither".to_owned()),
    };
    Tls::new(ca.as_deref().map(Path::new), own).map(Some)
}

fn token(url: &Url, params: &mut Params, env: Env<'_>) -> Result<Option<String>, String> {
    if url.user().is_some() {
        return Err(
            "the URL has a user, and Consul knows tokens only: write a colon before the token, as in consul://:TOKEN@HOST, \
             or name a file in token_file="
                .to_owned(),
        );
    }
    let (given, file) = (params.take("token"), params.take("token_file"));
    let given = given.or_else(|| url.password().map(str::to_owned));
    let token = match (given, file) {
        (Some(_), Some(_)) => return Err("give token or token_file, not both".to_owned()),
        (Some(token), None) => Some(token),
        (None, Some(file)) => Some(read_token(&file)?),
        (None, None) => match (env("CONSUL_HTTP_TOKEN"), env("CONSUL_HTTP_TOKEN_FILE")) {
            (_, Some(file)) => Some(read_token(&file)?),
            (token, None) => token,
        },
    };
    match token {
        Some(token) if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err("the token has a character that no token has".to_owned())
        }
        token => Ok(token.filter(|token| !token.is_empty())),
    }
}

fn read_token(file: &str) -> Result<String, String> {
    let read = std::fs::read_to_string(file);
    let token = read.map_err(|error| format!("the token file {file} cannot be read: {error}"))?;
    Ok(token.trim().to_owned())
}

/// The layout that the URL asks for; none for our own.
fn shared(params: &mut Params, path: &str) -> Result<Option<Layout>, String> {
    let (layout, key) = (params.take("layout"), params.take("mutex_key"));
    let bare = match key.as_deref() {
        None | Some(".lock") => false,
        Some("name") => true,
        Some(_) => return Err("mutex_key is .lock or name".to_owned()),
    };
    let start = match path {
        "" => String::new(),
        path => format!("{path}/"),
    };
    match layout.as_deref() {
        Some("consul") => Ok(Some(Layout { start, bare })),
        None | Some("own") if key.is_some() => {
            Err("mutex_key is for the locks of `consul lock`: add layout=consul".to_owned())
        }
        None | Some("own") => Ok(None),
        Some(_) => Err("layout is own or consul".to_owned()),
    }
}

fn scope(params: &mut Params, env: Env<'_>) -> String {
    let namespace = params.take("ns").or_else(|| env("CONSUL_NAMESPACE"));
    let partition = params.take("partition").or_else(|| env("CONSUL_PARTITION"));
    let given = [
        ("ns", namespace),
        ("partition", partition),
        ("dc", params.take("dc")),
    ];
    let given = given.iter().filter_map(|(name, value)| {
        let value = utf8_percent_encode(value.as_ref()?, NON_ALPHANUMERIC);
        Some(format!("{name}={value}"))
    });
    given.collect::<Vec<_>>().join("&")
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location())
    }
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::Config, Step::Connect, what).on("consul")
}

#[cfg(test)]
mod tests;
