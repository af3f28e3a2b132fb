//! A small place that remembers: values by name, each guarded by the fence of the lock of the same name.
//!
//! A [`Client`](crate::Client) has the store of its own URL (`memory:`, `redis:`, `postgres:`, `mysql:`, `sqlite:`); with an
//! engine that has none, [`ConnectOptions::store`](crate::ConnectOptions::store) names another. [`Stock`](crate::Stock),
//! [`Once`](crate::Once), [`Latch`](crate::Latch), [`Barrier`](crate::Barrier) and `Cached` keep their state there.
//!
//! # Contract
//! - A key is the name of a lock, and a holder of that lock alone writes it, with the fence of its guard.
//! - [`show`](Store::show) and [`put`](Store::put) are refused once a larger fence was shown, also after the value has ended: a
//!   fence is remembered for at least [`FENCE_KEPT`] longer than its value, and for at least that long if there is no value.
//! - All three are atomic, and time is the store's own. Asked again, `get` and `show` do no more than once. A store repeats
//!   those by itself after a broken connection, and never a `put`.

mod memory;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

pub use self::memory::MemoryStore;
use crate::engine::Url;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::{Fence, StaleFence};
use crate::guard::Guard;
use crate::name::Name;

/// How long a fence is remembered after the value that it wrote has ended.
pub const FENCE_KEPT: Duration = Duration::from_secs(3600);

/// The longest time that a value is kept, a hundred years: what is asked for beyond it is this. Sums with the time of a clock
/// stay below 2^53, up to which the numbers of a script are exact.
pub const LONGEST: Duration = Duration::from_secs(36_525 * 86_400);

/// The answer to a fence: what was asked for, or which larger fence was shown before.
pub type Fenced<T> = std::result::Result<T, StaleFence>;

/// Values by name, guarded by fences.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Fence, Name, store};
///
/// let (store, key) = (store::open("memory:")?, Name::new("x")?);
/// let (old, new) = (Fence::new(7), Fence::new(9));
/// assert!(store.show(&key, new).await?.is_ok()); // before the first read
/// assert!(store.put(&key, new, Some(b"1"), None).await?.is_ok());
/// assert_eq!(store.put(&key, old, Some(b"2"), None).await?.unwrap_err().seen, new);
/// assert_eq!(store.get(&key).await?.unwrap().value, b"1");
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The value of a key, if there is one that has not ended. One round trip.
    async fn get(&self, key: &Name) -> Result<Option<Entry>>;

    /// Shows a fence, and answers with the value: from then on smaller fences are refused. One round trip.
    async fn show(&self, key: &Name, fence: Fence) -> Result<Fenced<Option<Entry>>>;

    /// Replaces the value, for this long ([`LONGEST`] at most) or for good; without a value, removes it. One round trip.
    async fn put(
        &self,
        key: &Name,
        fence: Fence,
        value: Option<&[u8]>,
        keep: Option<Duration>,
    ) -> Result<Fenced<()>>;

    /// Where it is, as a URL without secrets.
    fn location(&self) -> String;
}

/// A value as a store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The bytes.
    pub value: Vec<u8>,
    /// The largest fence that was shown with the key.
    pub fence: Fence,
    /// When it was written, by the store's clock.
    pub written: SystemTime,
    /// When it ends; none if it stays.
    pub ends: Option<SystemTime>,
    /// When it was read, by the store's clock.
    pub read: SystemTime,
}

impl Entry {
    /// An entry as a store read it at this time of its clock.
    pub const fn new(
        value: Vec<u8>,
        fence: Fence,
        written: SystemTime,
        ends: Option<SystemTime>,
        read: SystemTime,
    ) -> Self {
        Self {
            value,
            fence,
            written,
            ends,
            read,
        }
    }

    /// How old it was when it was read. No clock but the store's has a part in it.
    pub fn age(&self) -> Duration {
        self.read.duration_since(self.written).unwrap_or_default()
    }

    /// How much was left of it when it was read; none if it stays.
    pub fn left(&self) -> Option<Duration> {
        let left = |ends: SystemTime| ends.duration_since(self.read).unwrap_or_default();
        self.ends.map(left)
    }
}

/// The store of a URL. Nothing is connected yet.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for an engine that has no store, [`ErrorKind::Config`] for a URL that cannot be.
///
/// ```
/// assert_eq!(leasehold::store::open("memory:shop")?.location(), "memory:shop");
/// let refused = leasehold::store::open("file:").unwrap_err();
/// assert_eq!(refused.kind(), leasehold::ErrorKind::Unsupported);
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn open(url: &str) -> Result<Arc<dyn Store>> {
    of(&Url::parse(url)?)
}

pub(crate) fn of(url: &Url) -> Result<Arc<dyn Store>> {
    match url.scheme() {
        "memory" => Ok(MemoryStore::of(url)?),
        #[cfg(feature = "redis")]
        "redis" | "rediss" | "redis+unix" | "redis+sentinel" | "redis+cluster" => {
            crate::engines::redis::store(url)
        }
        #[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
        "postgres" | "postgresql" | "mysql" | "mariadb" | "sqlite" => {
            crate::engines::sql::store(url)
        }
        other => {
            let what = format!(
                "{other:?} has no store of values: give one of memory:, redis:, postgres:, mysql: or sqlite: (with the \
                 cargo feature of that name) to ConnectOptions::store, beside the engine of the locks"
            );
            Err(Error::new(ErrorKind::Unsupported, Step::Store, what))
        }
    }
}

/// The error for a fence that was refused: the caller's lock was lost.
pub(crate) fn lost(stale: StaleFence, key: &Name) -> Error {
    let what = format!("the store refused the write: {stale}");
    Error::new(ErrorKind::Lost, Step::Store, what).of(key)
}

/// How often a write is repeated whose answer is not known.
const REPEATS: u32 = 4;

/// Writes with the fence of a guard, and repeats a write whose answer is not known: the same value with the same fence does no
/// more than once, if it is the last write of the guard's turn.
pub(crate) async fn put(
    store: &dyn Store,
    guard: &Guard,
    value: Option<&[u8]>,
    keep: Option<Duration>,
) -> Result<()> {
    let mut perhaps = false;
    let mut repeats = 0;
    loop {
        let error = match guard.check() {
            Err(lost) => lost,
            Ok(()) => match store.put(guard.name(), guard.fence(), value, keep).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(stale)) => lost(stale, guard.name()),
                Err(error) => error,
            },
        };
        perhaps |= error.may_have_happened();
        if !error.is_transient() || repeats == REPEATS {
            return Err(if perhaps { error.perhaps() } else { error });
        }
        tokio::time::sleep(Duration::from_millis(10 << repeats)).await;
        repeats += 1;
    }
}
