//! Options of the URL.

use std::time::Duration;

use super::client::{Address, Credentials, Login};
use super::error::Trouble;
use super::keys::Keys;
use super::redisson::Kinds;
use crate::engine::{Host, Params, Url};
use crate::engines::tls::Tls;
use crate::error::{Result, Step};

/// How long one step on the network may take unless the URL says so.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A deployment, as its URL describes it.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) shape: Shape,
    /// Servers, sentinels or members of a cluster.
    pub(super) hosts: Vec<Address>,
    pub(super) tls: Option<Tls>,
    pub(super) login: Credentials,
    pub(super) database: i64,
    pub(super) keys: Keys,
    /// How long one step on the network may take.
    pub(super) patience: Duration,
    /// How many replicas must have a grant before it is told.
    pub(super) replicas: u32,
    /// Whether a grant that was pushed is confirmed by the server before it is told.
    pub(super) confirm: bool,
    /// Whether a server that throws keys away when its memory is full may be used.
    pub(super) evicting: bool,
    /// The layout is Redisson's, with these kinds of lock.
    pub(super) redisson: Option<Kinds>,
}

/// How the servers belong together.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    One,
    Sentinel { master: String, login: Credentials },
    Cluster,
}

impl Config {
    /// What holds unless it is said otherwise.
    pub(super) fn new(shape: Shape, hosts: Vec<Address>) -> Self {
        Self {
            shape,
            hosts,
            tls: None,
            login: Credentials::Fixed(Login::default()),
            database: 0,
            keys: Keys {
                prefix: "lh:".to_owned(),
            },
            patience: TIMEOUT,
            replicas: 0,
            confirm: false,
            evicting: false,
            redisson: None,
        }
    }

    /// What no deployment can have.
    pub(super) fn check(self) -> std::result::Result<Self, Trouble> {
        let what = match &self {
            config if config.keys.prefix.contains(['{', '}']) => {
                "the prefix has a brace, and braces choose the slot: leave it out"
            }
            config if config.database < 0 => "a database has a number from 0",
            Self {
                shape: Shape::Cluster,
                database: 1..,
                ..
            } => "a cluster has database 0 only: leave the number out",
            _ => return Ok(self),
        };
        Err(Trouble::Config(what.to_owned()))
    }

    pub(super) fn of(url: &Url) -> Result<Self> {
        let mut params = url.params();
        let read = Self::read(url, &mut params).map_err(|trouble| trouble.at(Step::Connect))?;
        params.finish()?;
        Ok(read)
    }

    pub(super) fn read(url: &Url, params: &mut Params) -> std::result::Result<Self, Trouble> {
        let tls = Tls::of(params, url.scheme() == "rediss").map_err(Trouble::Config)?;
        let (shape, hosts, database) = place(url, params)?;
        if url.user().is_some() && url.password().is_none() {
            return Err(Trouble::Config(
                "the URL has a user and no password, and then no login is sent: write redis://USER:PASSWORD@HOST, or \
                 redis://:PASSWORD@HOST for the default user, with a colon before the password"
                    .to_owned(),
            ));
        }
        if let Shape::Sentinel {
            login: Credentials::Fixed(login),
            ..
        } = &shape
            && login.user.is_some()
            && login.password.is_none()
        {
            return Err(Trouble::Config(
                "sentinel_user and sentinel_password are a pair: give the password as well"
                    .to_owned(),
            ));
        }
        let redisson = match params.take("layout").as_deref() {
            None | Some("own") => None,
            Some("redisson") => Some(Kinds::read(params)?),
            Some(other) => {
                return Err(Trouble::Config(format!(
                    "layout={other}: write own or redisson"
                )));
            }
        };
        let prefix = params.take("prefix");
        if redisson.is_some() && prefix.is_some() {
            return Err(Trouble::Config(
                "layout=redisson takes no prefix, because the name is the key: leave it out"
                    .to_owned(),
            ));
        }
        let base = Self::new(shape, hosts);
        let config = Self {
            tls,
            login: Credentials::Fixed(Login {
                user: url.user().map(str::to_owned),
                password: url.password().map(str::to_owned),
            }),
            database,
            keys: prefix.map_or(base.keys, |prefix| Keys { prefix }),
            patience: params
                .duration("timeout", Duration::from_millis(1))
                .map_err(Trouble::Config)?
                .map_or(TIMEOUT, |timeout| timeout.max(Duration::from_millis(10))),
            replicas: number(params, "replicas", 0)?,
            confirm: params.flag("confirm").map_err(Trouble::Config)?,
            evicting: params.flag("evicting").map_err(Trouble::Config)?,
            redisson,
            ..base
        };
        config.check()
    }

    /// Where it is, without secrets. Hosts in any order are the same place.
    pub(super) fn location(&self) -> String {
        let mut hosts: Vec<_> = self.hosts.iter().map(Address::to_string).collect();
        hosts.sort();
        let hosts = hosts.join(",");
        let place = match &self.shape {
            Shape::One => format!("redis://{hosts}/{}", self.database),
            Shape::Sentinel { master, .. } => {
                format!("redis+sentinel://{hosts}/{master}/{}", self.database)
            }
            Shape::Cluster => format!("redis+cluster://{hosts}"),
        };
        format!("{place}?prefix={}", self.keys.prefix)
    }
}

fn place(
    url: &Url,
    params: &mut Params,
) -> std::result::Result<(Shape, Vec<Address>, i64), Trouble> {
    let hosts = |port| -> std::result::Result<Vec<_>, Trouble> {
        let hosts = url.hosts().iter().map(|host| Host::parse(host, port));
        let hosts = hosts.map(|host| host.map(Address::Tcp).map_err(Trouble::Config));
        hosts.collect()
    };
    let path = url.path().trim_matches('/');
    match url.scheme() {
        "redis+unix" => {
            let database = number(params, "db", 0)?;
            if url.path().is_empty() || !url.hosts().is_empty() {
                return Err(Trouble::Config(
                    "write redis+unix:///path/of/the/socket".to_owned(),
                ));
            }
            Ok((Shape::One, vec![Address::Unix(url.path().into())], database))
        }
        "redis+sentinel" => {
            let (master, database) = path.split_once('/').unwrap_or((path, ""));
            let login = Credentials::Fixed(Login {
                user: params.take("sentinel_user"),
                password: params.take("sentinel_password"),
            });
            if master.is_empty() || url.hosts().is_empty() {
                return Err(Trouble::Config(
                    "write redis+sentinel://HOST,HOST,HOST/MASTER-NAME".to_owned(),
                ));
            }
            let master = master.to_owned();
            Ok((
                Shape::Sentinel { master, login },
                hosts(26379)?,
                self::database(database)?,
            ))
        }
        "redis+cluster" => {
            if !matches!(path, "" | "0") {
                return Err(Trouble::Config(
                    "a cluster has database 0 only: leave the number out".to_owned(),
                ));
            }
            Ok((Shape::Cluster, or_local(hosts(6379)?), 0))
        }
        // Every host alone.
        "redlock" => Ok((Shape::One, hosts(6379)?, database(path)?)),
        _ => {
            let hosts = or_local(hosts(6379)?);
            if hosts.len() > 1 {
                let what = "one host only: write redis+sentinel:// or redis+cluster:// for several";
                return Err(Trouble::Config(what.to_owned()));
            }
            Ok((Shape::One, hosts, database(path)?))
        }
    }
}

fn or_local(hosts: Vec<Address>) -> Vec<Address> {
    match hosts.is_empty() {
        true => vec![Address::Tcp(Host {
            name: "localhost".to_owned(),
            port: 6379,
        })],
        false => hosts,
    }
}

fn database(text: &str) -> std::result::Result<i64, Trouble> {
    match text {
        "" => Ok(0),
        text => text.parse().map_err(|_| {
            Trouble::Config(
                "the path is not the number of a database: write redis://HOST/NUMBER".to_owned(),
            )
        }),
    }
}

fn number<N: std::str::FromStr>(
    params: &mut Params,
    name: &'static str,
    otherwise: N,
) -> std::result::Result<N, Trouble> {
    match params.take(name) {
        None => Ok(otherwise),
        Some(text) => text.parse().map_err(|_| {
            Trouble::Config(format!(
                "{name}={text}: write a whole number without a unit"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn config(url: &str) -> Result<Config> {
        Config::of(&Url::parse(url).unwrap())
    }

    #[test]
    fn urls_are_understood() {
        let one = config("redis://app:hunter2@h:7/3?prefix=x:&timeout=50&replicas=1").unwrap();
        assert_eq!(one.location(), "redis://h:7/3?prefix=x:");
        assert_eq!((one.patience, one.replicas), (Duration::from_millis(50), 1));
        assert!(!format!("{one:?}").contains("hunter2"));
        let timeout = |text| {
            config(&format!("redis://h?timeout={text}"))
                .unwrap()
                .patience
        };
        let all = ["1500", "1500ms", "3s", "1m"].map(|text| timeout(text).as_millis());
        assert_eq!(all, [1_500, 1_500, 3_000, 60_000]);
        assert_eq!(
            config("redis://").unwrap().location(),
            config("rediss://localhost/0").unwrap().location()
        );
        let unix = config("redis+unix:///run/r.sock?db=2").unwrap();
        assert_eq!(unix.hosts, [Address::Unix("/run/r.sock".into())]);
        assert_eq!(unix.database, 2);
        let sentinel =
            config("redis+sentinel://b,[::1]:9/main/1?sentinel_password=hunter2&tls=1").unwrap();
        assert_eq!(
            sentinel.location(),
            "redis+sentinel://[::1]:9,b:26379/main/1?prefix=lh:"
        );
        assert!(!format!("{sentinel:?}").contains("hunter2"));
        assert!(sentinel.tls.is_some());
        assert_eq!(
            config("redis+cluster://b,a").unwrap().location(),
            "redis+cluster://a:6379,b:6379?prefix=lh:"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, hint) in [
            ("redis://h/x", "database"),
            ("redis://h:port", "port"),
            ("redis://a,b", "redis+cluster"),
            ("redis://h?prefix={x}", "brace"),
            ("redis://h?ca=x", "tls=1"),
            ("rediss://h?cert=x", "pair"),
            ("rediss://h?ca=/nowhere", "/nowhere"),
            ("redis://h?replicas=many", "replicas"),
            ("redis://h?timeout=2x", "500ms, 5s"),
            ("redis://h?timeout=0", "above 0"),
            ("redis://h?nope=1", "nope"),
            ("redis://h?layout=other", "layout"),
            ("redis://h?layout=redisson&prefix=x", "prefix"),
            ("redis://h?layout=redisson&lock=best", "fenced"),
            ("redis://h?layout=redisson&semaphore=best", "expirable"),
            ("redis://h?lock=fair", "lock"),
            ("redis+sentinel://h", "MASTER-NAME"),
            ("redis+cluster://h/1", "database"),
            ("redis+unix://h/x", "socket"),
            ("redis://hunter2@h", "colon"),
            ("rediss://hunter2@h/1", "colon"),
            ("redis+cluster://hunter2@h", "colon"),
            ("redis+sentinel://hunter2@h/main", "colon"),
            ("redis+sentinel://h/main?sentinel_user=hunter2", "pair"),
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
            assert!(
                !format!("{error:?}").contains("hunter2"),
                "{url}: {error:?}"
            );
        }
    }
}
