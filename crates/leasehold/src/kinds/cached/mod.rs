//! Values that one process of a fleet loads and all of them use.

mod error;
mod fetch;
mod local;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::error::LoadError;
#[cfg(any(test, fuzzing))]
pub(super) use self::fetch::decode;
pub(crate) use self::local::Layer;
use self::local::{Held, Key};
use crate::client::Client;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::store;

/// A value that one process of a fleet loads, under the lock `cached:NAME`, and that all of them use until it ends. The client's
/// [store](crate::store) keeps it for the fleet, as JSON; a bounded layer in each process keeps it for that process.
///
/// | what happens | unless said otherwise | what it is for |
/// |---|---|---|
/// | the value ends after its [`ttl`](Self::ttl) | 60 s | |
/// | each value's ttl is shorter by up to a part of it, at random: [`ttl_jitter`](Self::ttl_jitter) | a tenth | values that were loaded together do not end together |
/// | "nothing there" is kept too, for [`ttl_of_nothing`](Self::ttl_of_nothing) | a tenth of the ttl | names that do not exist reach the database once |
/// | before its end one reader reloads it, while the others take it as it is: [`early`](Self::early) | in the last tenth | readers do not wait at the end of a value |
/// | after its end one reader reloads it, while the others take the old one: [`stale`](Self::stale) | not at all | a load that takes long, or fails |
/// | a process uses what it holds for so long without a look at the store: [`local`](Self::local) | 1 s | a hit asks no server |
///
/// A value that was not to be had is not kept: an error of the load goes to those who wait for that load, and the next request loads
/// again. While an old value may still be told, it is told instead of the error, and the load is tried again after
/// [`local`](Self::local).
///
/// Ages are those of the store, by its own clock: a wrong clock of this machine makes no reload early or late. A late loader's write is
/// refused by its fence.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use std::time::Duration;
///
/// let client = leasehold::connect("memory:").await?;
/// let tree = client.cached("categories").ttl(Duration::from_secs(600));
/// let load = async || Ok::<_, leasehold::Error>(Some(vec!["books".to_owned(), "toys".to_owned()]));
/// assert_eq!(tree.get_or_load(load).await?.unwrap().len(), 2);
/// let again = tree.get_or_load(async || Err::<Option<Vec<String>>, _>("not called"));
/// assert!(again.await.is_ok()); // it is there: nothing is loaded
/// # Ok(()) }
/// ```
#[must_use = "nothing is loaded until it is asked for"]
pub struct Cached<T> {
    client: Client,
    layer: Arc<Layer>,
    key: Key,
    settings: Settings,
    /// What this handle told last: a look into the layer takes several times as long as the rest of a hit.
    last: Mutex<Option<Arc<Held<T>>>>,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    ttl: Duration,
    jitter: f64,
    nothing: Option<Duration>,
    stale: Duration,
    early: f64,
    local: Duration,
    lease: Option<Duration>,
}

impl<T: Send + Sync + 'static> Cached<T> {
    pub(crate) fn new(client: Client, layer: Arc<Layer>, name: &str) -> Self {
        Self {
            client,
            layer,
            key: Key::of::<T>(name),
            settings: Settings {
                ttl: Duration::from_secs(60),
                jitter: 0.1,
                nothing: None,
                stale: Duration::ZERO,
                early: 0.1,
                local: Duration::from_secs(1),
                lease: None,
            },
            last: Mutex::default(),
        }
    }

    /// How long a value lasts after it was loaded; 60 s unless set.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = bounded(ttl);
        self
    }

    /// Up to which part of its ttl a value ends earlier, drawn anew for each: 0 to 1, a tenth unless set.
    pub const fn ttl_jitter(mut self, part: f64) -> Self {
        self.settings.jitter = part;
        self
    }

    /// How long "nothing there" lasts; a tenth of the ttl unless set, and with zero it is not kept.
    pub const fn ttl_of_nothing(mut self, ttl: Duration) -> Self {
        self.settings.nothing = Some(bounded(ttl));
        self
    }

    /// For how long after its ttl a value is still told while one reader reloads it; not at all unless set.
    pub const fn stale(mut self, stale: Duration) -> Self {
        self.settings.stale = bounded(stale);
        self
    }

    /// In which last part of its ttl a value is reloaded: each process draws a moment there, and the reader who comes first after the
    /// first such moment reloads. 0 to 1, a tenth unless set; with zero nothing is reloaded before its end.
    pub const fn early(mut self, part: f64) -> Self {
        self.settings.early = part;
        self
    }

    /// For how long this process uses a value without a look at the store; 1 s unless set, and with zero it looks every time. Another
    /// process may tell a value for up to twice this after [`forget`](Self::forget).
    pub const fn local(mut self, local: Duration) -> Self {
        self.settings.local = bounded(local);
        self
    }

    /// The lease of the loader's lock: after a loader died, another one loads within it.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = Some(lease);
        self
    }
}

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Cached<T> {
    /// The value, loaded if it is not there: `Ok(None)` of the load is "nothing there".
    ///
    /// A hit in this process takes no round trip, one in the store takes one. Of all who miss, in all processes, one loads.
    ///
    /// # Ordering
    /// Those who miss wait for the one who loads, and then see what it loaded.
    /// # Cancel safety
    /// Dropping the future of the one who loads drops the load; one of those who wait loads instead.
    /// # Errors
    /// [`LoadError::Load`] with the load's own error, told to all who waited for this load in this process; [`LoadError::Lock`] if
    /// the lock was lost (the load's future is dropped where it stands), or the engine or the store failed. A loaded value that the
    /// store could not take is told all the same, and the log has a warning.
    /// # Not promised
    /// That a value is told for its whole ttl: a store may lose it, and the layer in the process has room for so many values
    /// ([`ConnectOptions::cached_in_process`](crate::ConnectOptions::cached_in_process)). A load must not ask for its own name: it would wait
    /// for itself. A future that is not polled keeps the others of its process waiting, if it is the one who loads.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let product = client.cached::<String>("product:404");
    /// let load = async || Ok::<_, leasehold::Error>(None); // there is no such product
    /// assert!(product.get_or_load(load).await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn get_or_load<E, F>(&self, load: F) -> Result<Option<Arc<T>>, LoadError<E>>
    where
        E: Send + Sync + 'static,
        F: AsyncFnOnce() -> Result<Option<T>, E>,
    {
        let now = self.layer.now();
        if let Some(value) = self.last(now) {
            return Ok(value);
        }
        match self.layer.get::<T>(&self.key).await {
            Some(held) if held.is_fresh(now) => {
                if let Ok(mut last) = self.last.try_lock() {
                    *last = Some(held.clone());
                }
                Ok(held.value())
            }
            // In a box: a hit need not make room for what it does not do.
            Some(held) if held.is_there(now) => Box::pin(self.miss(Some(held), load)).await,
            held => {
                // The layer counts on a clock that stands still in suspend.
                if held.is_some() {
                    self.layer.forget::<T>(&self.key).await;
                }
                Box::pin(self.miss(None, load)).await
            }
        }
    }

    /// What this handle told last, if it is still to be told without a look. Another task that has the handle's memory in its
    /// hands is not waited for: the layer has it too.
    fn last(&self, now: Micros) -> Option<Option<Arc<T>>> {
        let last = self.last.try_lock().ok()?;
        let held = last.as_ref().filter(|held| held.is_fresh(now))?;
        Some(held.value())
    }

    async fn miss<E, F>(
        &self,
        held: Option<Arc<Held<T>>>,
        load: F,
    ) -> Result<Option<Arc<T>>, LoadError<E>>
    where
        E: Send + Sync + 'static,
        F: AsyncFnOnce() -> Result<Option<T>, E>,
    {
        let mut load = Some(load);
        let (held, found) = match held {
            Some(held) => (held, false),
            None => {
                // A value that is too old ends the flight: those who wait for it need not wait for the reload.
                let fetch = async || self.fetch(&mut load).await;
                let held = self.layer.one_flight(&self.key, fetch).await?;
                (held, true)
            }
        };
        let due = !found || held.is_due(self.layer.now());
        let looking = due.then(|| held.begin_look()).flatten();
        if let (Some(_looking), Some(load)) = (looking, load) {
            let next = match found {
                true => self.reload(&held, load).await?,
                false => self.look_again(&held, load).await?,
            };
            let value = next.value();
            self.layer.put(&self.key, next).await;
            return Ok(value);
        }
        Ok(held.value())
    }

    /// Forgets the value, under its lock: waits for one who loads it, so that what was read before is not kept after.
    ///
    /// # Ordering
    /// As [`Mutex::lock`](crate::Mutex::lock).
    /// # Cancel safety
    /// Dropping the future gives the lock back; the value may have been forgotten.
    /// # Errors
    /// Those of the lock and of the store.
    /// # Not promised
    /// Processes that hold the value may tell it for up to twice [`local`](Self::local).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// // The row was changed and committed:
    /// client.cached::<String>("product:7").forget().await?;
    /// # Ok(()) }
    /// ```
    pub async fn forget(&self) -> Result<()> {
        let store = self.client.store()?;
        let guard = self.lock().lock().await?;
        let forgotten = store::put(&*store, &guard, None, None).await;
        self.layer.forget::<T>(&self.key).await;
        forgotten?;
        guard.release().await.map(drop)
    }

    fn lock(&self) -> super::Mutex {
        let lock = self.client.guarding(&format!("cached:{}", self.key.name()));
        let lock = super::Mutex::new(lock);
        match self.settings.lease {
            Some(lease) => lock.lease(lease),
            None => lock,
        }
    }

    fn check(&self) -> Result<()> {
        let Settings {
            ttl, jitter, early, ..
        } = self.settings;
        let part = 0.0..=1.0;
        let what = match () {
            () if ttl.is_zero() => "a value that ends at once is not kept: give it a longer ttl",
            () if !part.contains(&jitter) => "ttl_jitter is a part of the ttl: from 0 to 1",
            () if !part.contains(&early) => "early is a part of the ttl: from 0 to 1",
            () => return Ok(()),
        };
        Err(Error::new(ErrorKind::Invalid, Step::Store, what))
    }
}

/// No longer than a store keeps a value: sums of times stay far from the largest one.
const fn bounded(time: Duration) -> Duration {
    match time.as_secs() < store::LONGEST.as_secs() {
        true => time,
        false => store::LONGEST,
    }
}

impl<T> Clone for Cached<T> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            layer: self.layer.clone(),
            key: self.key.clone(),
            settings: self.settings,
            last: Mutex::default(),
        }
    }
}

impl<T> fmt::Debug for Cached<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cached({:?}, {:?})", self.key.name(), self.settings)
    }
}
