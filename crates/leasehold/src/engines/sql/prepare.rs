//! The tables before their first use: whether they are there, whose they are, and whether this build speaks them.

use super::rows::{FREE, number};
use super::tables::{Tables, VERSION};
use super::trust;
use super::wire::{Trouble, What, Wire};
use super::world::{PATIENCE, World, pause};
use crate::clock::Clock;
use crate::fence::FENCE_BLOCK;

impl World {
    /// Prepares the tables, also while others do the same. `anew` if some of them are known to be missing.
    pub(super) async fn prepare(&self, wire: &mut Wire, anew: bool) -> Result<(), Trouble> {
        let clock = Clock::boot();
        let end = clock.now().saturating_add(PATIENCE);
        loop {
            match self.attempt(wire, anew).await {
                Err(trouble) if trouble.what == What::Again && clock.now() < end => pause().await,
                prepared => return prepared,
            }
        }
    }

    async fn attempt(&self, wire: &mut Wire, anew: bool) -> Result<(), Trouble> {
        let tables = self.locate(wire).await?;
        // Without a lock on them, and so also where the tables may not be read.
        trust::check(&tables, wire).await?;
        if anew {
            self.create(&tables, wire).await?;
        }
        let version = match version(&tables, wire).await {
            Ok(Some(version)) => version,
            Err(trouble) if trouble.what != What::Missing => return Err(trouble),
            // Not there, or another client is about to finish them.
            _ => {
                self.create(&tables, wire).await?;
                version(&tables, wire).await?.ok_or_else(|| {
                    Trouble::new(
                        What::Missing,
                        "the tables have no row that names their version",
                    )
                })?
            }
        };
        let advice = match version.cmp(&u64::from(VERSION)) {
            std::cmp::Ordering::Equal => {
                self.pin(tables);
                return self.boot(wire).await;
            }
            std::cmp::Ordering::Greater => "use a newer Leasehold",
            std::cmp::Ordering::Less => "migrate them",
        };
        let what = format!(
            "the tables {}* are of version {version} and this build speaks {VERSION}: {advice}",
            tables.prefix()
        );
        Err(Trouble::new(What::Unsuitable, what))
    }

    /// Where times are those of this machine's boot, what an earlier boot left is void. A power failure may have
    /// taken the last commits with it, so fences make a leap.
    async fn boot(&self, wire: &mut Wire) -> Result<(), Trouble> {
        if self.tables().dialect.now().is_some() {
            return Ok(());
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.map_err(|error| Trouble::new(What::Other, error.to_string()))?;
        let plain = |c: &char| c.is_ascii_hexdigit();
        let boot: String = boot.chars().filter(plain).collect();
        let t = self.tables();
        let look = format!("SELECT boot FROM {} WHERE boot = '{boot}'", t.meta);
        if wire
            .run(&look)
            .await?
            .first()
            .is_some_and(|rows| !rows.is_empty())
        {
            return Ok(());
        }
        let (leap, now) = (1 << 20, self.now());
        // All or nothing, and only by the first client after the boot.
        let other = format!("EXISTS (SELECT 1 FROM {} WHERE boot <> '{boot}')", t.meta);
        let packet = [
            "BEGIN IMMEDIATE".to_owned(),
            format!(
                "UPDATE {} SET id = {}, since = {now}, last = max(last, fence + {FENCE_BLOCK}) + {leap} WHERE {other}",
                t.line,
                t.dialect.id(FREE)
            ),
            format!("DELETE FROM {} WHERE {other}", t.claim),
            format!("DELETE FROM {} WHERE {other}", t.mail),
            format!("DELETE FROM {} WHERE {other}", t.session),
            format!(
                "UPDATE {} SET boot = '{boot}', floor = floor + CASE WHEN boot = '' THEN 0 ELSE {leap} END, floor_at = {now} WHERE boot <> '{boot}'",
                t.meta
            ),
            "COMMIT".to_owned(),
        ];
        wire.run(&packet.join("; ")).await.map(drop)
    }

    /// Makes the tables that are missing. Another role may have made some of them meanwhile, so nothing is written before
    /// all of them were looked at, under locks that keep them as they are.
    async fn create(&self, tables: &Tables, wire: &mut Wire) -> Result<(), Trouble> {
        let how = format!("`leasehold schema {}` prints them", tables.dialect.word());
        let missing = format!("the tables {}* are missing", tables.prefix());
        if !self.settings.create {
            return Err(Trouble::new(What::Missing, format!("{missing}: {how}")));
        }
        let (make, fill) = tables.create_in_two();
        let made = wire.run(&make).await;
        let _ = made.map_err(|mut trouble| {
            if trouble.what == What::Denied {
                let refused = &trouble.message;
                trouble.message = format!("{missing} and may not be created ({refused}): {how}");
            }
            trouble
        })?;
        trusted(tables, wire).await?;
        wire.run(&fill).await.map(drop)
    }
}

/// The version of the tables, under locks that keep them as they were when they were looked at; none if the row is not
/// there.
async fn version(tables: &Tables, wire: &mut Wire) -> Result<Option<u64>, Trouble> {
    let rows = wire.run(&tables.hold()).await?;
    // MariaDB and MySQL tell how many of the tables are there.
    if tables.counts() {
        let row = rows.first().and_then(|rows| rows.first());
        if number(row.map_or(&[][..], Vec::as_slice), 0)? < tables.all().len() as u64 {
            return Err(Trouble::new(
                What::Missing,
                "some of the tables are missing",
            ));
        }
    }
    trusted(tables, wire).await?;
    let look = format!("SELECT version FROM {}; COMMIT", tables.meta);
    let rows = wire.run(&look).await?;
    let row = rows.first().and_then(|rows| rows.first());
    row.map(|row| number(row, 0)).transpose()
}

/// Looks whose tables these are, in a transaction that is given up unless they are good.
async fn trusted(tables: &Tables, wire: &mut Wire) -> Result<(), Trouble> {
    let checked = trust::check(tables, wire).await;
    if checked.is_err() {
        // After an error that was the database's it is over already.
        drop(wire.run("ROLLBACK").await);
    }
    checked
}
