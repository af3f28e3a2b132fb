//! The tables before their first use: whether they are there, whose they are, and whether this build speaks them.

use super::rows::{FREE, number};
use super::tables::VERSION;
use super::trust;
use super::wire::{Rows, Trouble, What, Wire};
use super::world::{PATIENCE, World, pause};
use crate::clock::Clock;
use crate::fence::FENCE_BLOCK;

impl World {
    /// Prepares the tables, also while others do the same. `anew` if some of them are known to be missing.
    pub(super) async fn prepare(&self, wire: &mut Wire, anew: bool) -> Result<(), Trouble> {
        let clock = Clock::boot();
        let end = clock.now().saturating_add(PATIENCE);
        loop {
            let created = if anew {
                self.create(wire).await
            } else {
                Ok(())
            };
            let prepared = match created {
                Ok(()) => self.check(wire).await,
                Err(trouble) => Err(trouble),
            };
            match prepared {
                Err(trouble) if trouble.what == What::Again && clock.now() < end => pause().await,
                prepared => return prepared,
            }
        }
    }

    /// Looks at the version of the tables; creates them if that is allowed.
    async fn check(&self, wire: &mut Wire) -> Result<(), Trouble> {
        trust::check(&self.tables, wire).await?;
        let look = format!("SELECT version FROM {}", self.tables.meta);
        let there = |rows: &[Rows]| rows.first().is_some_and(|rows| !rows.is_empty());
        let rows = match wire.run(&look).await {
            Ok(rows) if there(&rows) => rows,
            Err(trouble) if trouble.what != What::Missing => return Err(trouble),
            // Not there, or another client is about to finish them.
            _ => {
                self.create(wire).await?;
                // Another role may have been faster.
                trust::check(&self.tables, wire).await?;
                wire.run(&look).await?
            }
        };
        let row = rows.first().and_then(|rows| rows.first());
        let version = number(row.map_or(&[][..], Vec::as_slice), 0)?;
        let advice = match version.cmp(&u64::from(VERSION)) {
            std::cmp::Ordering::Equal => return self.boot(wire).await,
            std::cmp::Ordering::Greater => "use a newer Leasehold",
            std::cmp::Ordering::Less => "migrate them",
        };
        let what = format!(
            "the tables {}* are of version {version} and this build speaks {VERSION}: {advice}",
            self.tables.prefix()
        );
        Err(Trouble::new(What::Unsuitable, what))
    }

    /// Where times are those of this machine's boot, what an earlier boot left is void. A power failure may have
    /// taken the last commits with it, so fences make a leap.
    async fn boot(&self, wire: &mut Wire) -> Result<(), Trouble> {
        if self.tables.dialect.now().is_some() {
            return Ok(());
        }
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let boot = boot.map_err(|error| Trouble::new(What::Other, error.to_string()))?;
        let plain = |c: &char| c.is_ascii_hexdigit();
        let boot: String = boot.chars().filter(plain).collect();
        let t = &self.tables;
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

    async fn create(&self, wire: &mut Wire) -> Result<(), Trouble> {
        let how = format!(
            "`leasehold schema {}` prints them",
            self.tables.dialect.word()
        );
        let missing = format!("the tables {}* are missing", self.tables.prefix());
        if !self.settings.create {
            return Err(Trouble::new(What::Missing, format!("{missing}: {how}")));
        }
        let created = wire.run(&self.tables.create_at_once()).await;
        created.map(drop).map_err(|mut trouble| {
            if trouble.what == What::Denied {
                let refused = &trouble.message;
                trouble.message = format!("{missing} and may not be created ({refused}): {how}");
            }
            trouble
        })
    }
}
