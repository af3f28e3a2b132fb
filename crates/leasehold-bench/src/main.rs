//! Leasehold and its peers side by side: prints ratios measured in one run.

#[cfg(feature = "cached")]
mod cached;
mod command;
#[cfg(feature = "consul")]
mod consul;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod lockers;
mod measure;
mod memory;
#[cfg(any(feature = "consul", feature = "etcd"))]
mod ordered;
mod processes;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "sql")]
mod sql;
mod table;
mod waiters;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::path::PathBuf;

use measure::Outcome;
use tempfile::TempDir;

const USAGE: &str = "leasehold-bench [--repeats N] [--url URL] [--command PATH] [--only PART]...";

/// The measurements to make, and how often.
pub(crate) struct Settings {
    /// How often each pair is measured.
    pub(crate) repeats: usize,
    /// The `leasehold` command.
    pub(crate) command: Option<PathBuf>,
    /// Instead of a directory of the file engine.
    url: Option<String>,
    /// The parts to run; all if there are none.
    only: Vec<String>,
}

impl Settings {
    fn read(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let mut settings = Self {
            repeats: 5,
            command: std::env::var_os("LEASEHOLD_BIN").map(PathBuf::from),
            url: None,
            only: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or(USAGE)?;
            match argument.as_str() {
                "--repeats" => settings.repeats = value.parse()?,
                "--command" => settings.command = Some(value.into()),
                "--url" => settings.url = Some(value),
                "--only" => settings.only.push(value),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(settings)
    }

    /// For what takes milliseconds: often enough that a busy machine moves the ends, not the median.
    pub(crate) const fn many(&self) -> usize {
        self.repeats * 5
    }

    /// A fresh place to lock in, gone when it is dropped.
    pub(crate) fn place(&self) -> Outcome<Place> {
        let dir = tempfile::tempdir()?;
        let url = match &self.url {
            Some(url) => url.clone(),
            None => format!("file:{}", dir.path().join("locks").display()),
        };
        Ok(Place { dir, url })
    }

    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }
}

/// Where to lock, and a directory for the peers' files on the same file system.
pub(crate) struct Place {
    dir: TempDir,
    pub(crate) url: String,
}

impl Place {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The engine's word.
    pub(crate) fn kind(&self) -> String {
        self.url.split(':').next().unwrap_or_default().to_owned()
    }
}

type Part = fn(&Settings) -> Outcome<()>;

const PARTS: &[(&str, Part)] = &[
    ("memory", memory::uncontended),
    ("memory-contended", memory::contended),
    #[cfg(feature = "cached")]
    ("cached", cached::hits),
    ("file", file::uncontended),
    ("linger", file::linger),
    ("processes", processes::contended),
    ("waiters", waiters::waiting),
    ("command", command::run_true),
    #[cfg(feature = "zookeeper")]
    ("zookeeper", zookeeper::uncontended),
    #[cfg(feature = "zookeeper")]
    ("zookeeper-contended", zookeeper::contended),
    #[cfg(feature = "etcd")]
    ("etcd", etcd::uncontended),
    #[cfg(feature = "etcd")]
    ("etcd-contended", etcd::contended),
    #[cfg(feature = "etcd")]
    ("etcd-hand", etcd::hand_over),
    #[cfg(feature = "consul")]
    ("consul", consul::uncontended),
    #[cfg(feature = "consul")]
    ("consul-contended", consul::contended),
    #[cfg(feature = "consul")]
    ("consul-hand", consul::hand_over),
    #[cfg(feature = "redis")]
    ("redis", redis::uncontended),
    #[cfg(feature = "redis")]
    ("redis-contended", redis::crowd::contended),
    #[cfg(feature = "redis")]
    ("redis-paused", redis::crowd::paused),
    #[cfg(feature = "redis")]
    ("redis-hand", redis::hand::over),
    #[cfg(feature = "redis")]
    ("redis-waiters", redis::many::waiting),
    #[cfg(feature = "redis")]
    ("redis-held", redis::many::held),
    #[cfg(feature = "redis")]
    ("striped", redis::striped::beside_one),
    #[cfg(feature = "sql")]
    ("sql", sql::uncontended),
    #[cfg(feature = "sql")]
    ("sql-contended", sql::contended),
    #[cfg(feature = "sql")]
    ("sql-strict", sql::strict),
];

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    // The benchmark starts itself again where it needs processes.
    match arguments.peek().map(String::as_str) {
        Some("lockers") => return lockers::work(arguments.skip(1)),
        #[cfg(any(feature = "consul", feature = "etcd"))]
        Some("ordered-lockers") => return ordered::work(arguments.skip(1)),
        #[cfg(feature = "zookeeper")]
        Some("zookeeper-lockers") => return zookeeper::work(arguments.skip(1)),
        #[cfg(feature = "redis")]
        Some("redis-lockers") => return redis::lockers::work(arguments.skip(1)),
        #[cfg(feature = "redis")]
        Some("redis-hand") => return redis::hand::work(arguments.skip(1)),
        #[cfg(feature = "sql")]
        Some("sql") => return sql::work(arguments.skip(1)),
        Some("waiters") => return waiters::work(arguments.skip(1)),
        _ => {}
    }
    let settings = Settings::read(arguments)?;
    table::print_head();
    for (_, part) in PARTS.iter().filter(|(name, _)| settings.wants(name)) {
        part(&settings)?;
    }
    Ok(())
}
