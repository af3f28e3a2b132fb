//! Taking a lock away, so that a repeat takes nothing more away.

use super::post::{WHY, cut};
use super::rows::{Key, number};
use super::tables::Tables;
use super::wire::{Trouble, Wire};
use super::world::World;
use crate::clock::Micros;
use crate::engine::Ended;
use crate::fence::Fence;
use crate::line::{Change, Line, Moment};
use crate::name::Name;
use crate::sync::Shared;

/// One eviction. The first look at the line decides which grants are meant; a repeat after a lost answer means the same
/// ones, and never those that were made since.
#[derive(Debug)]
pub(super) struct Eviction {
    pub(super) name: Name,
    /// The grant that is meant; all if there is none.
    pub(super) fence: Option<Fence>,
    pub(super) ended: Ended,
    meant: Shared<Option<Vec<Fence>>>,
}

impl Eviction {
    pub(super) fn new(name: Name, fence: Option<Fence>, ended: Ended) -> Self {
        let meant = Shared::default();
        Self {
            name,
            fence,
            ended,
            meant,
        }
    }

    /// Nothing of it can have been done: the next look decides.
    pub(super) fn begin(&self) {
        *self.meant.lock() = None;
    }

    /// The rule, on the grants that are meant.
    pub(super) fn apply(&self, line: &mut Line, at: Moment) -> Vec<Change> {
        let mut changes = line.sweep(at);
        let mut meant = self.meant.lock();
        let Some(meant) = &*meant else {
            let holders = line.holders();
            let those = holders.filter(|place| self.fence.is_none_or(|fence| place.owns(fence)));
            *meant = Some(those.filter_map(|place| place.fence).collect());
            changes.extend(line.evict(self.fence, at));
            return changes;
        };
        for fence in meant {
            changes.extend(line.evict(Some(*fence), at));
        }
        changes
    }

    /// The statements that leave a trace of it, in the transaction that does it.
    pub(super) fn trace(&self, tables: &Tables, was: &[(Key, Line)], now: Micros) -> Vec<String> {
        let (d, key) = (tables.dialect, Key::of(&self.name));
        let (by, why) = self.by_and_why();
        let meant = self.meant.lock().clone().unwrap_or_default();
        let holders = was.iter().filter(|(line, _)| *line == key);
        let fences = holders.flat_map(|(_, line)| line.holders().filter_map(|place| place.fence));
        let traces = fences.filter(|fence| meant.contains(fence)).map(|fence| {
            format!(
                "INSERT INTO {} (at, name, fence, who, why) VALUES ({now}, {}, {fence}, {}, {})",
                tables.eviction,
                d.bytes(self.name.as_str().as_bytes()),
                d.bytes(by),
                d.bytes(why)
            )
        });
        traces.collect()
    }

    /// How many of the grants that are meant this eviction has ended, as its traces say.
    pub(super) async fn done_before(&self, world: &World, wire: &mut Wire) -> Result<u32, Trouble> {
        let (d, (by, why)) = (world.tables().dialect, self.by_and_why());
        let meant = self.meant.lock().clone().unwrap_or_default();
        if meant.is_empty() {
            return Ok(0);
        }
        let meant: Vec<_> = meant.iter().map(Fence::to_string).collect();
        let look = format!(
            "SELECT count(*) FROM {} WHERE name = {} AND fence IN ({}) AND who = {} AND why = {}",
            world.tables().eviction,
            d.bytes(self.name.as_str().as_bytes()),
            meant.join(", "),
            d.bytes(by),
            d.bytes(why)
        );
        let rows = wire.run(&look).await?;
        let row = rows.first().and_then(|rows| rows.first());
        let count = number(row.map_or(&[][..], Vec::as_slice), 0)?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn by_and_why(&self) -> (&[u8], &[u8]) {
        match &self.ended {
            Ended::Evicted { by, why } => (cut(by, 255).as_bytes(), cut(why, WHY).as_bytes()),
            _ => (&[], &[]),
        }
    }
}
