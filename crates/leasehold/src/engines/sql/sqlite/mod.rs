//! SQLite: a file.

mod wire;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use self::wire::Inode;
use super::dialect::Dialect;
use super::wire::{Connect, Heard, Link, Listening, Trouble};
use crate::engine::{Params, Url};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::sync::Shared;

/// A database file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: PathBuf,
    /// Whether every commit reaches the disk before it counts.
    full: bool,
    /// The file that the path named when it was last opened: the claims of this process are in it.
    current: Arc<Shared<Option<Inode>>>,
}

impl File {
    pub(super) fn at(url: &Url, params: &mut Params) -> Result<Self> {
        let bad = |what: &str| Error::new(ErrorKind::Config, Step::Connect, what).on("sqlite");
        if !url.hosts().is_empty() || url.path().is_empty() {
            return Err(bad("write sqlite:FILE"));
        }
        // SQLite itself would open a database of each connection's own, or one without locks.
        if url.path() == ":memory:" || url.path().starts_with("file:") {
            let what = "this is no file that processes share: write sqlite:FILE with a path, or memory: for the locks of this \
                 process";
            return Err(bad(what));
        }
        // The process may go to another directory before the next connection is made.
        let path = std::path::absolute(url.path())
            .map_err(|error| bad("the directory of this process is not known").because(error))?;
        let full = match params.take("synchronous").as_deref() {
            None | Some("normal") => false,
            Some("full") => true,
            Some(_) => return Err(bad("synchronous is normal or full")),
        };
        Ok(Self {
            path,
            full,
            current: Arc::default(),
        })
    }
}

#[async_trait]
impl Connect for File {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    async fn connect(&self) -> Result<Box<dyn Link>, Trouble> {
        let link =
            wire::Connection::open(self.path.clone(), self.full, self.current.clone()).await?;
        Ok(Box::new(link))
    }

    async fn listen(&self, _: &str, _: Heard) -> Result<Option<Listening>, Trouble> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str) -> Result<File> {
        let url = Url::parse(url).unwrap();
        File::at(&url, &mut url.params())
    }

    #[test]
    fn what_no_other_process_would_open_is_refused() {
        for url in [
            "sqlite:",
            "sqlite::memory:",
            "sqlite:file::memory:",
            "sqlite:file:x%3Fmode=memory",
            "sqlite:file:/tmp/x%3Fnolock=1",
        ] {
            let error = at(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{url}: {error}");
        }
    }

    #[test]
    fn a_path_means_the_same_file_wherever_the_process_goes() {
        let here = std::env::current_dir().unwrap();
        for path in ["locks.db", "a/:memory:", "x:y"] {
            assert_eq!(at(&format!("sqlite:{path}")).unwrap().path, here.join(path));
        }
        assert_eq!(at("sqlite:/a/b").unwrap().path, PathBuf::from("/a/b"));
    }
}
