//! One instance of the shop: its connections, and what it has to itself.

use std::sync::atomic::AtomicU64;

use leasehold::{Client, ConnectOptions, store};

use crate::rows::Rows;
use crate::settings::Settings;
use crate::stock::Stock;

/// An error of the start.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// One instance of the shop.
#[derive(Debug)]
pub struct App {
    /// What it was told.
    pub settings: Settings,
    /// The pieces in Redis.
    pub stock: Stock,
    /// The pieces and the categories in MariaDB.
    pub rows: Rows,
    /// Leasehold, on the engine of `LEASEHOLD_URL`.
    pub locks: Client,
    /// The lock that this instance has to itself, as `synchronized` in Java.
    pub own: tokio::sync::Mutex<()>,
    /// How often this instance has read a category tree from the database.
    pub loads: AtomicU64,
}

impl App {
    /// Connects to everything.
    ///
    /// # Errors
    /// Those of the servers.
    pub async fn open(settings: Settings) -> Result<Self, Failed> {
        // Also for engines that have no store of their own.
        let values = store::open(&settings.redis)?;
        let options = ConnectOptions::new().store(values).lease(settings.lease);
        Ok(Self {
            stock: Stock::open(&settings.redis).await?,
            rows: Rows::open(&settings.mysql).await?,
            locks: options.connect("").await?,
            own: tokio::sync::Mutex::default(),
            loads: AtomicU64::default(),
            settings,
        })
    }
}
