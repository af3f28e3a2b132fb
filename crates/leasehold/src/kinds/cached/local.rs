//! What one process holds: bounded, and one flight per name.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use moka::Expiry;
use moka::future::Cache;

use super::LoadError;
use crate::clock::{Clock, Micros, micros};

/// How many values a process holds unless told otherwise.
const MANY: u64 = 10_000;

/// The values that one client holds.
pub(crate) struct Layer {
    clock: Clock,
    most: u64,
    cells: OnceLock<Cache<Key, Cell>>,
}

/// A name and the type of its values: two types of one name are held apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    of: TypeId,
    name: Arc<str>,
}

impl Key {
    pub(super) fn of<T: 'static>(name: &str) -> Self {
        Self {
            of: TypeId::of::<T>(),
            name: name.into(),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Clone)]
struct Cell {
    held: Arc<dyn Any + Send + Sync>,
    /// For how long it is of use.
    keep: Duration,
}

/// A value as a process holds it. Moments are those of the client's clock.
pub(super) struct Held<T> {
    pub(super) value: Option<Arc<T>>,
    /// When it was written, by the store's clock; none where that was not read.
    pub(super) written: Option<SystemTime>,
    /// When it was in the store.
    found: Micros,
    /// Until then it is used without a look at the store.
    pub(super) look: Micros,
    /// From then on it is to be reloaded.
    pub(super) reload: Micros,
    /// Until then it may be used at all.
    pub(super) gone: Micros,
    /// The end of the value in the store.
    pub(super) end: Micros,
    looking: AtomicBool,
    /// It was forgotten in this process.
    over: AtomicBool,
}

impl<T> Held<T> {
    /// A value that was in the store at this moment, or was put there, and ends there at another; to be reloaded from a third.
    pub(super) fn new(
        value: Option<Arc<T>>,
        written: Option<SystemTime>,
        [now, reload, end]: [Micros; 3],
        local: Duration,
    ) -> Self {
        let local = micros(local);
        let gone = now.saturating_add(local.saturating_mul(2)).min(end);
        let look = match reload > now {
            true => now.saturating_add(local).min(reload),
            // Another task reloads it.
            false => now.saturating_add(local.min(SOON)),
        };
        Self {
            value,
            written,
            found: now,
            look: look.min(gone),
            reload,
            gone,
            end,
            looking: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    pub(super) fn value(&self) -> Option<Arc<T>> {
        self.value.clone()
    }

    pub(super) fn is_fresh(&self, now: Micros) -> bool {
        now < self.look && !self.over.load(Ordering::Acquire)
    }

    pub(super) fn is_there(&self, now: Micros) -> bool {
        now < self.gone
    }

    /// The right to look at the store; none while another task of this process has it.
    pub(super) fn begin_look(&self) -> Option<Looking<'_>> {
        match self.looking.swap(true, Ordering::AcqRel) {
            true => None,
            false => Some(Looking(&self.looking)),
        }
    }

    pub(super) fn is_due(&self, now: Micros) -> bool {
        self.reload <= now
    }

    /// The same value after a look or a reload that failed, until this end: the next one is not at once. None after the end.
    pub(super) fn later(&self, now: Micros, end: Micros, local: Duration) -> Option<Self> {
        let next = now.saturating_add(micros(local)).min(end);
        let moments = [now, next, end];
        (now < end).then(|| Self::new(self.value(), self.written, moments, local))
    }

    /// The same value, which another process reloads.
    pub(super) fn as_it_is(&self, local: Duration) -> Self {
        let moments = [self.found, self.reload, self.end];
        Self::new(self.value(), self.written, moments, local)
    }
}

/// How soon a process looks again at what another one reloads, in microseconds.
const SOON: Micros = 50_000;

/// Gives the right back, also where the future is dropped.
pub(super) struct Looking<'a>(&'a AtomicBool);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Layer {
    pub(crate) fn of(clock: Clock, most: Option<u64>) -> Self {
        let (cells, most) = (OnceLock::new(), most.unwrap_or(MANY));
        Self { clock, most, cells }
    }

    pub(super) fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Made by the first value: most clients hold none.
    fn cells(&self) -> &Cache<Key, Cell> {
        self.cells.get_or_init(|| {
            let cells = Cache::builder().max_capacity(self.most);
            cells.expire_after(Ends).build()
        })
    }

    pub(super) async fn get<T: Send + Sync + 'static>(&self, key: &Key) -> Option<Arc<Held<T>>> {
        let cell = self.cells().get(key).await?;
        cell.held.downcast().ok()
    }

    pub(super) async fn put<T: Send + Sync + 'static>(&self, key: &Key, held: Held<T>) {
        let cell = self.cell(held);
        self.cells().insert(key.clone(), cell).await;
    }

    pub(super) async fn forget<T: Send + Sync + 'static>(&self, key: &Key) {
        if let Some(held) = self.get::<T>(key).await {
            held.over.store(true, Ordering::Release);
        }
        self.cells().invalidate(key).await;
    }

    /// What is held, or what this future brings; of those who ask meanwhile one brings it. If it fails they are all told so, and if
    /// its task drops it another one brings it.
    pub(super) async fn one_flight<T, E, F>(
        &self,
        key: &Key,
        bring: F,
    ) -> Result<Arc<Held<T>>, LoadError<E>>
    where
        T: Send + Sync + 'static,
        E: Send + Sync + 'static,
        F: AsyncFnOnce() -> Result<Held<T>, LoadError<E>>,
    {
        let cell = async { Ok(self.cell(bring().await?)) };
        let cell = self.cells().try_get_with(key.clone(), cell).await;
        let cell = cell.map_err(|failed: Arc<LoadError<E>>| failed.again())?;
        // The key has the type.
        Ok(cell.held.downcast().expect("a value of the key's type"))
    }

    fn cell<T: Send + Sync + 'static>(&self, held: Held<T>) -> Cell {
        let keep = Duration::from_micros(held.gone.saturating_sub(self.now()));
        let held = Arc::new(held);
        Cell { held, keep }
    }
}

/// Values that are of no use give their room to others.
struct Ends;

impl Expiry<Key, Cell> for Ends {
    fn expire_after_create(&self, _: &Key, cell: &Cell, _: std::time::Instant) -> Option<Duration> {
        Some(cell.keep)
    }

    fn expire_after_update(
        &self,
        _: &Key,
        cell: &Cell,
        _: std::time::Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(cell.keep)
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.cells.get().map_or(0, Cache::entry_count);
        write!(f, "Layer({held} of at most {})", self.most)
    }
}
