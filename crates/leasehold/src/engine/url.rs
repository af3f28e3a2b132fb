//! URLs of locks, taken apart.
//!
//! Written here rather than taken from the `url` crate: lock URLs name several hosts (`redlock://h1,h2,h3`), files
//! and directories, and an error must never repeat a password.

use std::fmt;
#[cfg(any(
    feature = "redis",
    feature = "postgres",
    feature = "mysql",
    feature = "sqlite"
))]
use std::time::Duration;

use percent_encoding::percent_decode_str;

#[cfg(any(
    feature = "zookeeper",
    feature = "consul",
    feature = "etcd",
    feature = "postgres",
    feature = "mysql"
))]
use super::Host;
use super::schemes;
use crate::error::{Error, ErrorKind, Result, Step};

/// A URL, taken apart. Its `Debug` and `Display` leave out the password and every option that is a secret.
///
/// ```
/// use leasehold::engine::Url;
///
/// let url = Url::parse("redis://app:hunter2@10.0.0.1:6379/2?prefix=x")?;
/// assert_eq!(url.scheme(), "redis");
/// assert_eq!(url.hosts(), ["10.0.0.1:6379"]);
/// assert_eq!(url.path(), "/2");
/// assert_eq!(url.password(), Some("hunter2"));
/// assert_eq!(url.to_string(), "redis://app:***@10.0.0.1:6379/2?prefix=x");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<String>,
    path: String,
    params: Vec<(String, String)>,
}

/// The value of an option with one of these in its name is never shown, misspelled or not.
const SECRETS: &[&str] = &["pas", "pwd", "token", "auth", "secret", "cred"];

/// Whether the value of an option may be a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    !name.ends_with("_file") && SECRETS.iter().any(|secret| name.contains(secret))
}

const MISPLACED: &str = "the URL has an @ where none belongs: write SCHEME://USER:PASSWORD@HOST, and in user, password, path \
     and options encode / as %2F, ? as %3F and @ as %40";

impl Url {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is none. The URL itself is not repeated: it may hold a secret.
    pub fn parse(text: &str) -> Result<Self> {
        let (scheme, rest) = split_scheme(text)?;
        let (place, query) = rest
            .split_once('?')
            .map_or((rest, None), |(place, query)| (place, Some(query)));
        let (authority, path) = match place.strip_prefix("//") {
            Some(place) => place.split_at(place.find('/').unwrap_or(place.len())),
            None => ("", place),
        };
        let names_hosts = schemes::names_hosts(&scheme);
        // The text after an unescaped / or ? of a password looks like a path or an option: none of it is repeated.
        let misplaced = path.contains('@') || query.is_some_and(|query| query.contains('@'));
        if misplaced && (names_hosts || !authority.is_empty()) {
            return Err(bad(MISPLACED.to_owned()));
        }
        if names_hosts && !place.is_empty() && !place.starts_with("//") {
            return Err(bad(format!("write {scheme}://HOST, with two slashes")));
        }
        let (login, hosts) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(login, hosts)| (Some(login), hosts));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, "")) => (Some(decode(user)?), None),
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
        };
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        Ok(Self {
            user: user.filter(|user| !user.is_empty()),
            password,
            hosts: hosts.map(str::to_owned).collect(),
            path: decode(path)?,
            params: parse_params(query)?,
            scheme,
        })
    }

    /// The part before the first colon, in lower case.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// The user, if there is one.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, if there is one.
    pub fn password(&self) -> Option<&str> {
        self.password.as_deref()
    }

    /// The hosts, each with its port if it was given.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// The hosts taken apart, each with this port if it was given none.
    #[cfg(any(
        feature = "zookeeper",
        feature = "consul",
        feature = "etcd",
        feature = "postgres",
        feature = "mysql"
    ))]
    pub(crate) fn addresses(&self, default_port: u16) -> Result<Vec<Host>> {
        let hosts = self
            .hosts
            .iter()
            .map(|host| Host::parse(host, default_port));
        hosts.collect::<Result<_, _>>().map_err(bad)
    }

    /// The path, decoded.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The options, to be taken one by one.
    pub fn params(&self) -> Params {
        Params {
            given: self.params.clone(),
            known: Vec::new(),
        }
    }
}

/// The options of a URL. An engine takes those it knows; [`finish`](Self::finish) refuses the rest.
///
/// ```
/// use leasehold::engine::Url;
///
/// let mut params = Url::parse("memory:?shout=1")?.params();
/// assert_eq!(params.take("echo"), None);
/// let error = params.finish().unwrap_err();
/// assert!(error.to_string().contains("shout") && error.to_string().contains("echo"));
/// # Ok::<(), leasehold::Error>(())
/// ```
pub struct Params {
    given: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Params {
    /// The value of an option, if it was given.
    pub fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let at = self.given.iter().position(|(given, _)| given == name)?;
        Some(self.given.remove(at).1)
    }

    /// Whether something is on; off if it was not given.
    #[cfg(any(
        feature = "redis",
        feature = "zookeeper",
        feature = "etcd",
        feature = "consul"
    ))]
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, String> {
        match self.take(name).as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true" | "") => Ok(true),
            Some(other) => Err(format!("{name}={other}: write 1 or 0")),
        }
    }

    /// A length of time; a number without a unit counts in this one.
    #[cfg(any(
        feature = "redis",
        feature = "postgres",
        feature = "mysql",
        feature = "sqlite"
    ))]
    pub(crate) fn duration(
        &mut self,
        name: &'static str,
        bare: Duration,
    ) -> Result<Option<Duration>, String> {
        let Some(text) = self.take(name) else {
            return Ok(None);
        };
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let unit = match &text[digits..] {
            "" => Some(bare),
            "ms" => Some(Duration::from_millis(1)),
            "s" => Some(Duration::from_secs(1)),
            "m" => Some(Duration::from_secs(60)),
            _ => None,
        };
        let length = unit.and_then(|unit| unit.checked_mul(text[..digits].parse().ok()?));
        let length = length.filter(|length| !length.is_zero());
        length.map(Some).ok_or_else(|| {
            format!("{name}={text}: write a time above 0 with its unit: 500ms, 5s, 1m")
        })
    }

    /// Refuses options that the engine did not take.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the option and the ones there are.
    pub fn finish(self) -> Result<()> {
        let Some((unknown, _)) = self.given.first() else {
            return Ok(());
        };
        if self.known.contains(&unknown.as_str()) {
            return Err(bad(format!("the option {unknown:?} is given twice")));
        }
        let known = match self.known.as_slice() {
            [] => "it has none".to_owned(),
            known => format!("known: {}", known.join(", ")),
        };
        Err(bad(format!(
            "unknown option {unknown:?} in the URL ({known})"
        )))
    }
}

impl fmt::Debug for Params {
    // Names only: a value may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.given.iter().map(|(name, _)| name))
            .finish()
    }
}

/// A path as a URL has it: what would be taken for an escape or an option is escaped.
#[cfg(any(all(feature = "file", unix), feature = "sqlite"))]
pub(crate) fn path_in_url(path: &std::path::Path) -> String {
    let path = path.to_string_lossy();
    path.replace('%', "%25").replace('?', "%3F")
}

fn parse_params(query: Option<&str>) -> Result<Vec<(String, String)>> {
    let pairs = query
        .unwrap_or("")
        .split('&')
        .filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name)?, decode(value)?))
        })
        .collect()
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| bad("the URL is not UTF-8 once its %XX are decoded".to_owned()))
}

/// The scheme in lower case, and what follows its colon.
fn split_scheme(text: &str) -> Result<(String, &str)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    match text.split_once(':') {
        Some((scheme, rest)) if !scheme.is_empty() && scheme.chars().all(plain) => {
            Ok((scheme.to_ascii_lowercase(), rest))
        }
        _ => Err(bad(format!(
            "this is not a lock URL: it has no scheme (known: {})",
            schemes::known()
        ))),
    }
}

pub(super) fn bad(what: String) -> Error {
    Error::new(ErrorKind::Config, Step::Connect, what)
}

impl Url {
    /// On servers whose logins are passwords or tokens alone, a user without a password may be one of them in the wrong place.
    fn shown_user(&self) -> &str {
        let misplaced = self.password.is_none() && self.user.is_some();
        match misplaced && (self.scheme.starts_with("consul") || self.scheme.starts_with("red")) {
            true => "***",
            false => self.user().unwrap_or(""),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if !self.hosts.is_empty() || self.user.is_some() {
            f.write_str("//")?;
        }
        if self.user.is_some() || self.password.is_some() {
            f.write_str(self.shown_user())?;
            f.write_str(if self.password.is_some() {
                ":***@"
            } else {
                "@"
            })?;
        }
        write!(f, "{}{}", self.hosts.join(","), self.path)?;
        for (at, (name, value)) in self.params.iter().enumerate() {
            let value = if is_secret(name) { "***" } else { value };
            write!(f, "{}{name}={value}", if at == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
