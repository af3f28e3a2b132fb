//! The ways to sell one piece.

mod local;
mod locked;
mod rows;
mod segments;
mod setnx;

use std::str::FromStr;

use crate::answer::{Answer, Outcome};
use crate::app::App;
use crate::stock::Books;
use crate::switch::{Point, Switch};

pub use self::setnx::{Stage, key};

/// A way to sell one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Without a lock.
    None,
    /// Under the instance's own lock.
    Own,
    /// Under a key of Redis, by hand.
    SetNx(Stage),
    /// Under Leasehold, "busy" at once.
    FailFast,
    /// Under Leasehold, in line.
    Waiting,
    /// In one transaction that locks the row.
    RowLock,
    /// Without a lock, if the row's version is still the one that was read.
    Version,
    /// From one of many segments, each under a lock of its own.
    Segments,
}

/// Where a way counts its pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Redis,
    MariaDb,
    Segments,
}

/// One attempt to buy.
#[derive(Debug)]
pub struct Work<'a> {
    /// The instance.
    pub app: &'a App,
    /// The number of the item.
    pub item: u64,
    /// What the request was told beside it.
    pub switch: &'a Switch,
}

impl Work<'_> {
    /// What a sale does between its read and its write: prices, vouchers, a page of Java.
    pub(crate) async fn think(&self) -> Outcome<()> {
        tokio::time::sleep(self.app.settings.think).await;
        self.switch.at(Point::Held, self.app).await
    }
}

impl Way {
    /// Sells one piece.
    ///
    /// # Errors
    /// Those of the servers.
    pub async fn buy(self, work: &Work<'_>) -> Outcome<Answer> {
        match self {
            Self::None => work.app.stock.sell(work).await,
            Self::Own => local::buy(work).await,
            Self::SetNx(stage) => setnx::buy(work, stage).await,
            Self::FailFast => locked::fail_fast(work).await,
            Self::Waiting => locked::waiting(work).await,
            Self::RowLock => rows::row_lock(work).await,
            Self::Version => rows::version(work).await,
            Self::Segments => segments::buy(work).await,
        }
    }

    /// Puts so many pieces of an item there.
    ///
    /// # Errors
    /// Those of the servers.
    pub async fn fill(self, app: &App, item: u64, left: i64) -> Outcome<()> {
        match self.place() {
            Place::Redis => app.stock.fill(item, left).await,
            Place::MariaDb => app.rows.fill(item, left).await,
            Place::Segments => segments::fill(app, item, left).await,
        }
    }

    /// What is left of an item and what was sold, as the place says where this way counts.
    ///
    /// # Errors
    /// Those of the servers.
    pub async fn books(self, app: &App, item: u64) -> Outcome<Option<Books>> {
        match self.place() {
            Place::Redis => app.stock.books(item).await.map(Some),
            Place::MariaDb => {
                let read = crate::rows::read(&mut app.rows.connection().await?, item).await?;
                Ok(read.map(|read| read.books))
            }
            Place::Segments => segments::books(app, item).await.map(Some),
        }
    }

    const fn place(self) -> Place {
        match self {
            Self::RowLock | Self::Version => Place::MariaDb,
            Self::Segments => Place::Segments,
            _ => Place::Redis,
        }
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Ok(match word {
            "none" => Self::None,
            "own" => Self::Own,
            "setnx-1" => Self::SetNx(Stage::NoExpiry),
            "setnx-2" => Self::SetNx(Stage::ExpiryAfter),
            "setnx-3" => Self::SetNx(Stage::Delete),
            "setnx-4" => Self::SetNx(Stage::GetThenDelete),
            "setnx-5" => Self::SetNx(Stage::Script),
            "fail-fast" => Self::FailFast,
            "waiting" => Self::Waiting,
            "row-lock" => Self::RowLock,
            "version" => Self::Version,
            "segments" => Self::Segments,
            _ => {
                return Err(format!(
                    "{word:?} is no way to buy: none, own, setnx-1 to setnx-5, fail-fast, waiting, row-lock, version, segments"
                ));
            }
        })
    }
}
