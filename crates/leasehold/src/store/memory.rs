//! Values in this process's memory.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use async_trait::async_trait;

use super::{Entry, FENCE_KEPT, Fenced, LONGEST, Store};
use crate::clock::{Clock, Micros, micros};
use crate::engine::Url;
use crate::error::Result;
use crate::fence::{Fence, StaleFence};
use crate::name::Name;
use crate::sync::Shared;

/// Values in this process's memory, for tests and single processes.
///
/// ```
/// use leasehold::{engine::Clock, store::{MemoryStore, Store}};
/// let store = MemoryStore::new(Clock::boot());
/// assert!(store.location().starts_with("memory:"));
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    label: String,
    clock: Clock,
    cells: Shared<HashMap<Name, Cell>>,
}

#[derive(Debug)]
struct Cell {
    fence: Fence,
    /// Bytes, when they were written, and when they end.
    value: Option<(Vec<u8>, Micros, Option<Micros>)>,
    /// When the fence may be forgotten; never while a value stays.
    gone: Option<Micros>,
}

/// The stores that have a label.
static LABELLED: LazyLock<Shared<HashMap<String, Weak<MemoryStore>>>> =
    LazyLock::new(Shared::default);

/// At this many keys, and at every doubling, those that are gone are forgotten.
const MANY: usize = 1024;

impl MemoryStore {
    /// A store of its own, on this clock.
    pub fn new(clock: Clock) -> Self {
        Self {
            label: String::new(),
            clock,
            cells: Shared::default(),
        }
    }

    /// The store of a `memory:` URL: with a label, the same one wherever this process opens it.
    pub(super) fn of(url: &Url) -> Result<Arc<Self>> {
        url.params().finish()?;
        let label = url.path();
        if label.is_empty() {
            return Ok(Arc::new(Self::new(Clock::boot())));
        }
        let mut stores = LABELLED.lock();
        if let Some(store) = stores.get(label).and_then(Weak::upgrade) {
            return Ok(store);
        }
        let store = Arc::new(Self {
            label: label.to_owned(),
            ..Self::new(Clock::boot())
        });
        let _ = stores.insert(label.to_owned(), Arc::downgrade(&store));
        Ok(store)
    }

    fn entry(&self, cell: &Cell, now: Micros) -> Option<Entry> {
        let (value, written, ends) = cell.value.as_ref()?;
        if ends.is_some_and(|ends| ends <= now) {
            return None;
        }
        let wall = |moment| self.clock.wall_time_of(moment);
        let ends = ends.map(wall);
        let (written, read) = (wall(*written), wall(now));
        Some(Entry::new(value.clone(), cell.fence, written, ends, read))
    }

    /// Changes a cell unless it has seen a larger fence.
    fn change<T>(
        &self,
        key: &Name,
        fence: Fence,
        change: impl FnOnce(&mut Cell, Micros) -> T,
    ) -> Fenced<T> {
        let now = self.clock.now();
        let mut cells = self.cells.lock();
        if cells.len() >= MANY && cells.len().is_power_of_two() {
            cells.retain(|_, cell| cell.gone.is_none_or(|gone| gone > now));
        }
        let cell = cells.entry(key.clone()).or_insert(Cell {
            fence,
            value: None,
            gone: Some(now + micros(FENCE_KEPT)),
        });
        if cell.fence > fence {
            let (shown, seen) = (fence, cell.fence);
            return Err(StaleFence { shown, seen });
        }
        cell.fence = fence;
        Ok(change(cell, now))
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn get(&self, key: &Name) -> Result<Option<Entry>> {
        let now = self.clock.now();
        let cells = self.cells.lock();
        Ok(cells.get(key).and_then(|cell| self.entry(cell, now)))
    }

    async fn show(&self, key: &Name, fence: Fence) -> Result<Fenced<Option<Entry>>> {
        Ok(self.change(key, fence, |cell, now| self.entry(cell, now)))
    }

    async fn put(
        &self,
        key: &Name,
        fence: Fence,
        value: Option<&[u8]>,
        keep: Option<Duration>,
    ) -> Result<Fenced<()>> {
        Ok(self.change(key, fence, |cell, now| {
            let ends = keep.map(|keep| now + micros(keep.min(LONGEST)));
            cell.value = value.map(|value| (value.to_owned(), now, ends));
            let until = match value {
                Some(_) => ends,
                None => Some(now),
            };
            cell.gone = until.map(|until| until.saturating_add(micros(FENCE_KEPT)));
        }))
    }

    fn location(&self) -> String {
        match self.label.as_str() {
            "" => format!("memory:#{:p}", self),
            label => format!("memory:{label}"),
        }
    }
}
