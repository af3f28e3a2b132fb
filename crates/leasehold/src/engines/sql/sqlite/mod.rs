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
    path: PathBuf,
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
        let full = match params.take("synchronous").as_deref() {
            None | Some("normal") => false,
            Some("full") => true,
            Some(_) => return Err(bad("synchronous is normal or full")),
        };
        Ok(Self {
            path: url.path().into(),
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

    async fn connect(&self) -> Result<Box<dyn Link>, Trouble> {
        let link =
            wire::Connection::open(self.path.clone(), self.full, self.current.clone()).await?;
        Ok(Box::new(link))
    }

    async fn listen(&self, _: &str, _: Heard) -> Result<Option<Listening>, Trouble> {
        Ok(None)
    }
}
