//! Which URL opens which engine.
//!
//! Written here rather than taken from the `url` crate: lock URLs name several hosts (`redlock://h1,h2,h3`), files
//! and directories, and an error must never repeat a password.

use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::Engine;
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

/// Options whose value is never shown.
const SECRET_PARAMS: &[&str] = &["password", "sentinel_password", "token", "auth", "secret"];

impl Url {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is none. The URL itself is not repeated: it may hold a secret.
    pub fn parse(text: &str) -> Result<Self> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(bad(format!(
                "this is not a lock URL: it has no scheme (known: {})",
                known_schemes()
            )));
        };
        let scheme = scheme.to_ascii_lowercase();
        let (rest, query) = rest
            .split_once('?')
            .map_or((rest, None), |(a, b)| (a, Some(b)));
        let params = parse_params(query)?;
        let Some(rest) = rest.strip_prefix("//") else {
            return Ok(Self {
                scheme,
                user: None,
                password: None,
                hosts: Vec::new(),
                path: decode(rest)?,
                params,
            });
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (login, hosts) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(a, b)| (Some(a), b));
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, "")))
        {
            None => (None, None),
            Some((user, "")) => (Some(decode(user)?), None),
            Some((user, password)) => (Some(decode(user)?), Some(decode(password)?)),
        };
        Ok(Self {
            scheme,
            user: user.filter(|user| !user.is_empty()),
            password,
            hosts: hosts
                .split(',')
                .filter(|h| !h.is_empty())
                .map(str::to_owned)
                .collect(),
            path: decode(path)?,
            params,
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
    #[cfg(any(feature = "redis", feature = "zookeeper"))]
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, String> {
        match self.take(name).as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true" | "") => Ok(true),
            Some(other) => Err(format!("{name}={other}: write 1 or 0")),
        }
    }

    /// Refuses what nobody took.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] naming the option and the ones there are.
    pub fn finish(self) -> Result<()> {
        let Some((unknown, _)) = self.given.first() else {
            return Ok(());
        };
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

/// One engine that a URL can open.
struct Opener {
    schemes: &'static [&'static str],
    open: fn(&Url) -> Result<Arc<dyn Engine>>,
}

/// Every engine of this build.
const OPENERS: &[Opener] = &[
    Opener {
        schemes: &["memory"],
        open: crate::engines::memory::open,
    },
    #[cfg(feature = "file")]
    Opener {
        schemes: &["file"],
        open: crate::engines::file::open,
    },
    #[cfg(feature = "redis")]
    Opener {
        schemes: &[
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "redis+cluster",
        ],
        open: crate::engines::redis::open,
    },
    #[cfg(feature = "zookeeper")]
    Opener {
        schemes: &["zookeeper"],
        open: crate::engines::zookeeper::open,
    },
    #[cfg(feature = "postgres")]
    Opener {
        schemes: &["postgres", "postgresql"],
        open: crate::engines::sql::open,
    },
    #[cfg(feature = "mysql")]
    Opener {
        schemes: &["mysql", "mariadb"],
        open: crate::engines::sql::open,
    },
    #[cfg(feature = "sqlite")]
    Opener {
        schemes: &["sqlite"],
        open: crate::engines::sql::open,
    },
    #[cfg(feature = "redlock")]
    Opener {
        schemes: &["redlock"],
        open: crate::engines::redis::redlock::open,
    },
];

/// The engine a URL stands for. An empty one stands for `LEASEHOLD_URL`, and without that for `file:`.
pub(crate) fn engine(text: &str) -> Result<Arc<dyn Engine>> {
    let url = match text {
        "" => Url::parse(&default_url()?)?,
        text => Url::parse(text)?,
    };
    let opener = OPENERS
        .iter()
        .find(|opener| opener.schemes.contains(&url.scheme()));
    match opener {
        Some(opener) => (opener.open)(&url),
        None => Err(bad(format!(
            "no engine for {:?} in this build (known: {})",
            url.scheme(),
            known_schemes()
        ))),
    }
}

fn default_url() -> Result<String> {
    match std::env::var("LEASEHOLD_URL") {
        Ok(url) if !url.is_empty() => Ok(url),
        Err(std::env::VarError::NotUnicode(_)) => Err(bad("LEASEHOLD_URL is not UTF-8".to_owned())),
        _ => Ok("file:".to_owned()),
    }
}

fn known_schemes() -> String {
    let schemes = OPENERS.iter().flat_map(|opener| opener.schemes);
    let schemes: Vec<_> = schemes.map(|scheme| format!("{scheme}:")).collect();
    schemes.join(" ")
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
        .map_err(|_| bad("the URL is not UTF-8 once decoded".to_owned()))
}

fn bad(what: String) -> Error {
    Error::new(ErrorKind::Config, Step::Connect, what)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if !self.hosts.is_empty() || self.user.is_some() {
            f.write_str("//")?;
        }
        if self.user.is_some() || self.password.is_some() {
            f.write_str(self.user().unwrap_or(""))?;
            f.write_str(if self.password.is_some() {
                ":***@"
            } else {
                "@"
            })?;
        }
        write!(f, "{}{}", self.hosts.join(","), self.path)?;
        for (at, (name, value)) in self.params.iter().enumerate() {
            let value = if SECRET_PARAMS.contains(&name.as_str()) {
                "***"
            } else {
                value
            };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_urls_apart() {
        let url = Url::parse("zookeeper://h1:2181,h2/locks/a%20b?acl=x&auth=p").unwrap();
        assert_eq!(url.hosts(), ["h1:2181", "h2"]);
        assert_eq!(url.path(), "/locks/a b");
        assert_eq!(
            url.to_string(),
            "zookeeper://h1:2181,h2/locks/a b?acl=x&auth=***"
        );
        let url = Url::parse("file:/var/lock/x?y").unwrap();
        assert_eq!((url.path(), url.hosts().len()), ("/var/lock/x", 0));
        assert_eq!(Url::parse("FILE:x").unwrap().scheme(), "file");
        let url = Url::parse("redis://:p%40ss@h").unwrap();
        assert_eq!((url.user(), url.password()), (None, Some("p@ss")));
    }

    #[test]
    fn never_shows_a_secret() {
        let url = Url::parse("redis://u:hunter2@h/?token=hunter2&password=hunter2").unwrap();
        for shown in [format!("{url}"), format!("{url:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        for wrong in ["nope://u:hunter2@h", "hunter2", "redis://u:hunter2%ff@h"] {
            let error = engine(wrong).unwrap_err();
            assert!(
                !format!("{error} {error:?}").contains("hunter2"),
                "{error:?}"
            );
        }
    }

    #[test]
    fn unknown_schemes_and_options_name_the_known_ones() {
        let error = engine("nope:").unwrap_err().to_string();
        assert!(
            error.contains("\"nope\"") && error.contains("memory:"),
            "{error}"
        );
        let error = engine("memory:?nope=1").unwrap_err().to_string();
        assert!(error.contains("nope"), "{error}");
    }
}
