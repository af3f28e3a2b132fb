//! Which URL opens which engine.

use std::sync::Arc;

use super::url::bad;
use super::{Engine, Url};
#[cfg(all(feature = "file", unix))]
use crate::engines::file::open as file;
use crate::error::Result;
#[cfg(all(feature = "file", not(unix)))]
use crate::error::{Error, ErrorKind, Step};

type Open = fn(&Url) -> Result<Arc<dyn Engine>>;

/// An engine, whether this build has it or not.
struct Opener {
    schemes: &'static [&'static str],
    /// The cargo feature it comes with.
    feature: &'static str,
    open: Option<Open>,
}

/// The engine if the feature is on, and none otherwise.
macro_rules! opener {
    ($schemes:expr, $feature:literal, $open:path) => {
        Opener {
            schemes: &$schemes,
            feature: $feature,
            #[cfg(feature = $feature)]
            open: Some($open),
            #[cfg(not(feature = $feature))]
            open: None,
        }
    };
}

const REDIS: [&str; 5] = [
    "redis",
    "rediss",
    "redis+unix",
    "redis+sentinel",
    "redis+cluster",
];

const OPENERS: &[Opener] = &[
    Opener {
        schemes: &["memory"],
        feature: "",
        open: Some(crate::engines::memory::open),
    },
    opener!(["file"], "file", file),
    opener!(REDIS, "redis", crate::engines::redis::open),
    opener!(["zookeeper"], "zookeeper", crate::engines::zookeeper::open),
    opener!(["etcd", "etcds"], "etcd", crate::engines::etcd::open),
    opener!(
        ["consul", "consuls", "consul+unix"],
        "consul",
        crate::engines::consul::open
    ),
    opener!(
        ["postgres", "postgresql"],
        "postgres",
        crate::engines::sql::open
    ),
    opener!(["mysql", "mariadb"], "mysql", crate::engines::sql::open),
    opener!(["sqlite"], "sqlite", crate::engines::sql::open),
    opener!(["redlock"], "redlock", crate::engines::redis::redlock::open),
];

/// `file:` where the system has not what it is made of.
#[cfg(all(feature = "file", not(unix)))]
fn file(url: &Url) -> Result<Arc<dyn Engine>> {
    let what = format!(
        "{url} needs the file locks and local sockets of a Unix, and this system has none: use sqlite:FILE for the \
         processes of one machine, or memory: for one process (without a URL, LEASEHOLD_URL says which)"
    );
    Err(Error::new(ErrorKind::Unsupported, Step::Connect, what))
}

/// The engine a URL stands for. An empty one stands for `LEASEHOLD_URL`, and without that for `file:`.
pub(crate) fn engine(text: &str) -> Result<(Url, Arc<dyn Engine>)> {
    let url = match text {
        "" => Url::parse(&default_url()?)?,
        text => Url::parse(text)?,
    };
    let scheme = url.scheme();
    let opener = OPENERS.iter().find(|one| one.schemes.contains(&scheme));
    match opener.map(|opener| (opener.open, opener.feature)) {
        Some((Some(open), _)) => open(&url).map(|engine| (url, engine)),
        Some((None, feature)) => Err(bad(format!(
            "this build has no engine for {scheme:?}: enable the cargo feature `{feature}`"
        ))),
        None => Err(bad(match similar(scheme) {
            Some(similar) => format!("no engine is called {scheme:?}: did you mean {similar}?"),
            None => format!("no engine is called {scheme:?} (known: {})", known()),
        })),
    }
}

fn default_url() -> Result<String> {
    match std::env::var("LEASEHOLD_URL") {
        Ok(url) if !url.is_empty() => Ok(url),
        Err(std::env::VarError::NotUnicode(_)) => Err(bad("LEASEHOLD_URL is not UTF-8".to_owned())),
        _ => Ok("file:".to_owned()),
    }
}

/// Whether hosts follow the scheme; after the others comes a path or a label, where an `@` means nothing.
pub(super) fn names_hosts(scheme: &str) -> bool {
    !["memory", "file", "sqlite", "redis+unix", "consul+unix"].contains(&scheme)
}

/// The schemes of this build.
pub(super) fn known() -> String {
    let there = OPENERS.iter().filter(|opener| opener.open.is_some());
    let schemes = there.flat_map(|opener| opener.schemes);
    let schemes: Vec<_> = schemes.map(|scheme| format!("{scheme}:")).collect();
    schemes.join(" ")
}

/// The scheme that differs in the fewest letters, two at most.
fn similar(scheme: &str) -> Option<&'static str> {
    let all = OPENERS.iter().flat_map(|opener| opener.schemes).copied();
    let near = all.map(|other| (distance(scheme, other), other)).min()?;
    (near.0 <= 2 && near.0 < scheme.len()).then_some(near.1)
}

/// How many letters must be added, left out or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        engine(url).unwrap_err().to_string()
    }

    #[test]
    fn unknown_schemes_name_the_known_ones() {
        let error = refusal("carrier-pigeon:");
        assert!(
            error.contains("carrier-pigeon") && error.contains("memory:"),
            "{error}"
        );
        let error = refusal("redsi://h");
        assert!(error.contains("did you mean redis?"), "{error}");
        let error = refusal("memroy:");
        assert!(error.contains("did you mean memory?"), "{error}");
    }

    #[test]
    fn an_engine_of_another_build_names_its_feature() {
        for opener in OPENERS.iter().filter(|opener| opener.open.is_none()) {
            let error = refusal(&format!("{}://h", opener.schemes[0]));
            let feature = format!("cargo feature `{}`", opener.feature);
            assert!(error.contains(&feature), "{error}");
        }
    }
}
