//! Values in a table, beside those of the lines.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;

use super::Sql;
use super::dialect::Dialect;
use super::lanes::Pool;
use super::rows::{Key, cell, hex_bytes, number};
use super::wire::{Trouble, What, Wire};
use super::world::{PATIENCE, World, pause};
use crate::clock::{Clock, Micros, micros};
use crate::engine::Url;
use crate::error::{Result, Step};
use crate::fence::{Fence, StaleFence};
use crate::name::Name;
use crate::store::{Entry, FENCE_KEPT, Fenced, LONGEST, Store};

/// Values in the table `store`: a row per key.
struct SqlStore {
    world: Arc<World>,
    pool: Arc<Pool>,
    /// Whether the tables were looked at.
    ready: tokio::sync::Mutex<bool>,
}

/// The store of a database's URL.
pub(crate) fn store(url: &Url) -> Result<Arc<dyn Store>> {
    let world = Sql::from_url(url)?.world;
    let pool = Pool::of(world.settings.lanes);
    Ok(Arc::new(SqlStore {
        world,
        pool,
        ready: tokio::sync::Mutex::default(),
    }))
}

/// A row as it was read: the largest fence, and the value if it has not ended.
type Row = (Fence, Option<Entry>);

/// The text of a packet, once the schema of its tables is settled.
type Packet<'a> = &'a (dyn Fn() -> String + Send + Sync);

/// The end of a value that has none.
const NEVER: Micros = i64::MAX as Micros;

impl SqlStore {
    fn dialect(&self) -> Dialect {
        self.world.tables().dialect
    }

    /// The time as a statement asks for it: that of the wall, because values outlive a boot.
    fn now(&self) -> String {
        let now = self.dialect().now().map(str::to_owned);
        now.unwrap_or_else(|| Clock::boot().wall().to_string())
    }

    fn select(&self, key: Key) -> String {
        format!(
            "SELECT fence, written, ends, {}, {} FROM {} WHERE k = {}",
            self.now(),
            self.dialect().hex("value"),
            self.world.tables().store,
            self.dialect().id(key.0)
        )
    }

    /// Makes the row of a key that has none, and forgets a few that are gone: those of one in 4096 of all keys.
    fn insert(&self, name: &Name) -> String {
        let (d, table, now) = (self.dialect(), &self.world.tables().store, self.now());
        let (ignore, conflict) = match d {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => ("", " ON CONFLICT (k) DO NOTHING"),
            #[cfg(feature = "mysql")]
            Dialect::Mysql => (" IGNORE", ""),
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => (" OR IGNORE", ""),
        };
        let (key, text) = (d.id(Key::of(name).0), d.bytes(name.as_str().as_bytes()));
        let from = u128::from(rand::random_range(0_u16..4096)) << 116;
        let (from, to) = (d.id(from), d.id(from | (u128::MAX >> 12)));
        format!(
            "DELETE FROM {table} WHERE k BETWEEN {from} AND {to} AND gone < {now}; \
             INSERT{ignore} INTO {table} (k, name, fence, written, ends, gone) VALUES ({key}, {text}, 0, 0, 0, {now}){conflict}"
        )
    }

    /// Changes a row unless it has seen a larger fence. The row is made if there is none: it is not asked for first.
    async fn change(&self, key: &Name, fence: Fence, set: &str) -> Result<Fenced<Option<Entry>>> {
        let (d, number) = (self.dialect(), Key::of(key));
        let update = || {
            format!(
                "UPDATE {} SET fence = {fence}{set} WHERE k = {} AND fence <= {fence}; {}; COMMIT",
                self.world.tables().store,
                d.id(number.0),
                self.select(number)
            )
        };
        let repeated = set.is_empty();
        let known = || format!("{}; {}", d.begin(), update());
        let mut row = self.run(key, &known, repeated).await?;
        if row.is_none() {
            let unknown = || format!("{}; {}; {}", d.begin(), self.insert(key), update());
            row = self.run(key, &unknown, repeated).await?;
        }
        Ok(match row {
            Some((seen, _)) if seen > fence => Err(StaleFence { shown: fence, seen }),
            Some((_, entry)) => Ok(entry),
            None => Ok(None),
        })
    }

    /// Runs a packet until no other transaction is in the way; after a broken connection only if it may be `repeated`.
    async fn run(&self, key: &Name, packet: Packet<'_>, repeated: bool) -> Result<Option<Row>> {
        let clock = Clock::boot();
        let end = clock.now().saturating_add(PATIENCE);
        let (mut cut, mut created) = (false, false);
        let (_room, mut wire) = self.pool.wire(&self.world).await;
        loop {
            let trouble = match self.attempt(&mut wire, packet).await {
                Ok(row) => {
                    self.pool.keep(wire);
                    return Ok(row);
                }
                Err(trouble) => trouble,
            };
            match trouble.what {
                What::Again if clock.now() < end => pause().await,
                What::Broken if repeated && !std::mem::replace(&mut cut, true) => {}
                What::Missing if !std::mem::replace(&mut created, true) => {
                    let made = self.world.prepare(&mut wire, true).await;
                    made.map_err(|trouble| trouble.at(Step::Store, self.dialect()).of(key))?;
                }
                _ => return Err(trouble.at(Step::Store, self.dialect()).of(key)),
            }
        }
    }

    async fn attempt(&self, wire: &mut Wire, packet: Packet<'_>) -> Result<Option<Row>, Trouble> {
        let mut ready = self.ready.lock().await;
        if !*ready {
            self.world.prepare(wire, false).await?;
            *ready = true;
        }
        drop(ready);
        let answers = wire.run(&packet()).await?;
        let row = answers.iter().find_map(|rows| rows.first());
        row.map(|row| read(row)).transpose()
    }
}

fn read(row: &[Option<String>]) -> Result<Row, Trouble> {
    let (fence, written, ends) = (number(row, 0)?, number(row, 1)?, number(row, 2)?);
    let (fence, now) = (Fence::new(fence), number(row, 3)?);
    // A row without a value has ended, too: the hexadecimal text of NULL is empty on SQLite.
    if ends <= now {
        return Ok((fence, None));
    }
    let wall = |moment| UNIX_EPOCH + Duration::from_micros(moment);
    let ends = (ends < NEVER).then(|| wall(ends));
    let value = hex_bytes(cell(row, 4)?)?;
    let entry = Entry::new(value, fence, wall(written), ends, wall(now));
    Ok((fence, Some(entry)))
}

#[async_trait]
impl Store for SqlStore {
    async fn get(&self, key: &Name) -> Result<Option<Entry>> {
        let select = || self.select(Key::of(key));
        let row = self.run(key, &select, true).await?;
        Ok(row.and_then(|(_, entry)| entry))
    }

    async fn show(&self, key: &Name, fence: Fence) -> Result<Fenced<Option<Entry>>> {
        self.change(key, fence, "").await
    }

    async fn put(
        &self,
        key: &Name,
        fence: Fence,
        value: Option<&[u8]>,
        keep: Option<Duration>,
    ) -> Result<Fenced<()>> {
        let (now, kept) = (self.now(), micros(FENCE_KEPT));
        let set = match (value, keep) {
            (None, _) => format!("value = NULL, ends = 0, gone = {now} + {kept}"),
            (Some(value), keep) => {
                let value = self.dialect().bytes(value);
                let (ends, gone) = match keep {
                    None => (NEVER.to_string(), NEVER.to_string()),
                    Some(keep) => {
                        let keep = micros(keep.min(LONGEST));
                        (
                            format!("{now} + {keep}"),
                            format!("{now} + {}", keep + kept),
                        )
                    }
                };
                format!("value = {value}, written = {now}, ends = {ends}, gone = {gone}")
            }
        };
        let put = self.change(key, fence, &format!(", {set}")).await?;
        Ok(put.map(drop))
    }

    fn location(&self) -> String {
        self.world.settings.location.clone()
    }
}

impl std::fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SqlStore({})", self.world.settings.location)
    }
}
