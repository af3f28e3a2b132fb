//! Where the locks are: which URL, and what of it the command is told.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use leasehold::Client;
use leasehold::engine::Url;

use crate::cli::Common;
use crate::exit::{Exit, Failure};
use crate::password;

/// The variable with the URL.
const URL: &str = "LEASEHOLD_URL";

/// The variable with the path of a file that has the URL in it.
const URL_FILE: &str = "LEASEHOLD_URL_FILE";

/// A URL as it was given.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// None means the default.
    url: Option<String>,
    /// The file it was read from.
    file: Option<PathBuf>,
    /// The URL with a password that it did not have itself.
    completed: Option<String>,
}

impl Place {
    /// An option counts more than a variable, a file more than a URL in the open.
    pub(crate) fn given(common: &Common) -> Result<Self, Failure> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let given = common.url.clone();
        let file = match &given {
            Some(_) => None,
            None => common
                .url_file
                .clone()
                .or_else(|| variable(URL_FILE).map(PathBuf::from)),
        };
        let url = match (given, &file) {
            (Some(url), _) => Some(url),
            (None, Some(file)) => Some(read(file)?),
            (None, None) => variable(URL).map(utf8).transpose()?,
        };
        let completed = match &url {
            Some(url) => password::completed(url, &|name| std::env::var_os(name))?,
            None => None,
        };
        let place = Self {
            url,
            file,
            completed,
        };
        // The library refuses a URL that cannot be parsed, in its own words.
        match Url::parse(place.url()).is_ok_and(|url| url.scheme() == "memory") {
            true => Err(Failure::new(
                Exit::Config,
                "memory: has the locks of one process, and this command is a process of its own: it would exclude no other. \
                 Use file: or a server",
            )),
            false => Ok(place),
        }
    }

    /// For the library; empty means the default.
    pub(crate) fn url(&self) -> &str {
        let url = self.completed.as_ref().or(self.url.as_ref());
        url.map_or("", String::as_str)
    }

    /// Variables for the command's environment: a nested run finds the same locks by them. Without the password unless
    /// that is wanted.
    pub(crate) fn env(
        &self,
        client: &Client,
        with_password: bool,
    ) -> Vec<(&'static str, OsString)> {
        let url = match &self.url {
            Some(url) if !is_relative(url) => match with_password {
                true => url.clone(),
                false => without_secrets(url),
            },
            // A directory that is named from here would be another one wherever the command goes.
            _ => client.location(),
        };
        let file = self
            .file
            .as_deref()
            .and_then(|file| std::path::absolute(file).ok());
        let file = file.map(|file| (URL_FILE, file.into_os_string()));
        [(URL, url.into())].into_iter().chain(file).collect()
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let wrong = |what: String| Failure::new(Exit::Config, format!("{}: {what}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    match text.trim() {
        "" => Err(wrong(
            "the file is empty: write a lock URL into it".to_owned(),
        )),
        url => Ok(url.to_owned()),
    }
}

fn utf8(value: OsString) -> Result<String, Failure> {
    let wrong = |_| Failure::new(Exit::Config, format!("{URL} is not UTF-8"));
    value.into_string().map_err(wrong)
}

fn is_relative(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| {
        url.hosts().is_empty() && !url.path().is_empty() && !url.path().starts_with('/')
    })
}

/// A URL without its password, and without options that may hold a secret.
fn without_secrets(url: &str) -> String {
    let (place, query) = match url.split_once('?') {
        Some((place, query)) => (place, Some(query)),
        None => (url, None),
    };
    let place = match (place.split_once("://"), place.rsplit_once('@')) {
        (Some((scheme, login)), Some((_, hosts))) if login.contains('@') => {
            let user = login.split([':', '@']).next().unwrap_or("");
            let at = if user.is_empty() { "" } else { "@" };
            format!("{scheme}://{user}{at}{hosts}")
        }
        _ => place.to_owned(),
    };
    // The library knows which options are secrets: it shows their values as stars.
    let secret = |option: &&str| {
        let alone = Url::parse(&format!("memory:?{option}"));
        alone.is_ok_and(|alone| alone.to_string().ends_with("=***"))
    };
    let options = query.unwrap_or("").split('&');
    let options: Vec<_> = options
        .filter(|option| !option.is_empty() && !secret(option))
        .collect();
    match options.is_empty() {
        true => place,
        false => format!("{place}?{}", options.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_passed_on_has_no_password() {
        for (given, passed) in [
            ("redis://:s3cret@h:1/2", "redis://h:1/2"),
            (
                "redis://app:s3cret@h/2?prefix=x",
                "redis://app@h/2?prefix=x",
            ),
            ("postgres://app@h/db", "postgres://app@h/db"),
            (
                "postgres://app:s3%40cret@a,b:2/db",
                "postgres://app@a,b:2/db",
            ),
            (
                "redis+sentinel://:s3cret@a,b/m?sentinel_password=s3cret&db=1",
                "redis+sentinel://a,b/m?db=1",
            ),
            (
                "zookeeper://h/x?auth=digest:app:s3cret&acl=creator",
                "zookeeper://h/x?acl=creator",
            ),
            ("zookeeper://h/x?%61uth=digest:a:s3cret", "zookeeper://h/x"),
            (
                "rediss://h?cert=/a&key=/b&ca=/c",
                "rediss://h?cert=/a&key=/b&ca=/c",
            ),
            (
                "etcd://app:s3cret@a,b?prefix=x/",
                "etcd://app@a,b?prefix=x/",
            ),
            ("consul://:s3cret@h/locks?dc=x", "consul://h/locks?dc=x"),
            (
                "consuls://h/locks?token=s3cret&token_file=/a",
                "consuls://h/locks?token_file=/a",
            ),
            ("file:/a@b", "file:/a@b"),
            ("sqlite:/a?x=1", "sqlite:/a?x=1"),
        ] {
            let found = without_secrets(given);
            assert_eq!(found, passed);
            assert!(!found.contains("cret"), "{found}");
        }
    }
}
