//! Options of the URL.

use std::time::Duration;

use super::super::client::Address;
use super::super::config::Config as Redis;
use super::super::error::Trouble;
use super::super::keys::Keys;
use crate::engine::Url;
use crate::error::{Result, Step};

/// A deployment, as its URL describes it.
#[derive(Debug, Clone)]
pub(super) struct Config {
    /// The settings that all nodes share, and their hosts.
    redis: Redis,
    /// No lease is longer, and a node that began with nothing stays out of votes for so long.
    pub(super) longest: Duration,
}

/// Locks in nodes of other layouts have other keys.
const INFIX: &str = "rl:";
const LONGEST: Duration = Duration::from_secs(60);

impl Config {
    pub(super) fn of(url: &Url) -> Result<Self> {
        let mut params = url.params();
        let longest = params.take("longest");
        let redis = Redis::read(url, &mut params);
        params.finish()?;
        let read = redis.and_then(|redis| Self::checked(redis, longest.as_deref()));
        read.map_err(|trouble| trouble.at(Step::Connect).on("redlock"))
    }

    fn checked(mut redis: Redis, longest: Option<&str>) -> std::result::Result<Self, Trouble> {
        let wrong = |what: &str| Err(Trouble::Config(what.to_owned()));
        redis.keys.prefix.push_str(INFIX);
        redis.hosts.sort_by_key(Address::to_string);
        if redis.hosts.len() < 3 || redis.hosts.len() > 32 {
            return wrong(
                "write redlock://HOST,HOST,HOST: a majority needs 3 nodes at least, and 32 at most",
            );
        }
        if redis.hosts.windows(2).any(|two| two[0] == two[1]) {
            return wrong("a node is named twice: its vote would count twice");
        }
        if redis.replicas > 0 {
            return wrong(
                "a node of Redlock has no replicas: write more nodes instead of replicas=N",
            );
        }
        let longest = match longest.map(str::parse) {
            None => LONGEST,
            Some(Ok(seconds)) if seconds > 0 => Duration::from_secs(seconds),
            Some(_) => {
                return wrong("longest is not a whole number of seconds above 0");
            }
        };
        Ok(Self { redis, longest })
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = Redis> {
        let alone = |host: &Address| Redis {
            hosts: vec![host.clone()],
            ..self.redis.clone()
        };
        self.redis.hosts.iter().map(alone)
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.redis.keys
    }

    /// How long a majority may take for an answer about a claim. A try asks twice, and half of the lease is left after it.
    pub(super) fn patience(&self, lease: Duration) -> Duration {
        self.redis.patience.min(lease / 4)
    }

    /// How long one node may take when no lease is running.
    pub(super) fn unhurried(&self) -> Duration {
        self.redis.patience
    }

    /// Where it is, without secrets. Hosts in any order are the same place.
    pub(super) fn location(&self) -> String {
        let hosts: Vec<_> = self.redis.hosts.iter().map(Address::to_string).collect();
        format!(
            "redlock://{}/{}?prefix={}",
            hosts.join(","),
            self.redis.database,
            self.redis.keys.prefix
        )
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
        let three = config("redlock://u:hunter2@c,b:7,a/2?longest=5&timeout=50").unwrap();
        assert_eq!(
            three.location(),
            "redlock://a:6379,b:7,c:6379/2?prefix=lh:rl:"
        );
        assert!(!format!("{three:?}").contains("hunter2"));
        assert_eq!(three.longest, Duration::from_secs(5));
        assert_eq!(three.nodes().count(), 3);
        assert_eq!(
            three.patience(Duration::from_secs(10)),
            Duration::from_millis(50)
        );
        assert_eq!(
            three.patience(Duration::from_millis(80)),
            Duration::from_millis(20)
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, hint) in [
            ("redlock://", "3 nodes"),
            ("redlock://a,b", "3 nodes"),
            ("redlock://a,b,a:6379", "twice"),
            ("redlock://a,b,c?replicas=1", "replicas"),
            ("redlock://a,b,c?longest=0", "longest"),
            ("redlock://a,b,c?nope=1", "nope"),
        ] {
            let error = config(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            assert!(error.to_string().contains(hint), "{url}: {error}");
        }
    }
}
