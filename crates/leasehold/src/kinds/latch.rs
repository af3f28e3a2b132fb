//! A count that opens for all who wait when it comes to nothing.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Mutex;
use super::looks::Looks;
use crate::client::Client;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::name::Name;
use crate::store::{self, Entry};

/// A latch: counted down so many times from anywhere in the fleet, it opens for all who wait, and stays open.
///
/// The count is in the client's [store](crate::store), as decimal text, and is changed under the lock `latch:NAME`. It is kept for a
/// day after it was counted last ([`keep`](Self::keep)); after that, or a [`reset`](Self::reset), the latch begins anew. It is as
/// durable as the store: one that forgets its last writes in a crash or a failover forgets counts.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let loaded = client.latch("import:7", 2); // two parts
/// assert_eq!(loaded.count_down().await?, 1);
/// assert_eq!(loaded.count_down().await?, 0);
/// loaded.wait().await?; // open: at once
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a latch does nothing until it is counted down or waited for"]
pub struct Latch {
    client: Client,
    name: String,
    lock: Mutex,
    count: u32,
    keep: Duration,
    shared: Arc<Shared>,
}

/// What the clones of one handle share: one of those who wait looks at the store.
#[derive(Default)]
struct Shared {
    looking: tokio::sync::Mutex<()>,
    /// How often a look found the latch open.
    open: AtomicU64,
}

impl Latch {
    pub(crate) fn new(client: Client, name: &str, count: u32) -> Self {
        let name = format!("latch:{name}");
        let lock = Mutex::new(client.guarding(&name));
        Self {
            client,
            name,
            lock,
            count,
            keep: Duration::from_secs(86_400),
            shared: Arc::default(),
        }
    }

    /// For how long the count is kept after it was counted down; a day unless set.
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// Counts down by one, and answers with how many are left. An open latch stays open.
    ///
    /// # Ordering
    /// What was done before it is done for all who are told that the latch is open.
    /// # Cancel safety
    /// Dropping the future gives the lock back; it may have been counted.
    /// # Errors
    /// Those of the lock and of the store; [`ErrorKind::Conflict`] if the latch was made with another count. Unless the error
    /// [may have happened](Error::may_have_happened) nothing was counted.
    /// # Not promised
    /// That a process counts once: one that begins anew after a crash may have been counted before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert_eq!(client.latch("ready", 3).count_down().await?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn count_down(&self) -> Result<u32> {
        self.check()?;
        let store = self.client.store()?;
        let guard = self.lock.lock().await?;
        let shown = store.show(guard.name(), guard.fence()).await?;
        let shown = shown.map_err(|stale| store::lost(stale, guard.name()))?;
        let left = self.read(shown)?.saturating_sub(1);
        let text = format!("{left} of {}", self.count);
        store::put(&*store, &guard, Some(text.as_bytes()), Some(self.keep)).await?;
        // It is counted: a lock that ends now takes nothing back.
        let _ = guard.release().await;
        Ok(left)
    }

    /// How many are left: one look at the store.
    ///
    /// # Ordering
    /// A look at one moment.
    /// # Cancel safety
    /// Changes nothing.
    /// # Errors
    /// Those of the store, and [`ErrorKind::Conflict`] if the latch was made with another count.
    /// # Not promised
    /// That it is still so many when it is told.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert_eq!(client.latch("ready", 3).left().await?, 3);
    /// # Ok(()) }
    /// ```
    pub async fn left(&self) -> Result<u32> {
        self.check()?;
        let name = Name::new(&self.name)?;
        self.read(self.client.store()?.get(&name).await?)
    }

    /// Waits until the latch is open. It looks at the store, at most every 250 ms; of the tasks that wait with clones of one handle
    /// one looks for all.
    ///
    /// # Ordering
    /// After every [`count_down`](Self::count_down) that opened it.
    /// # Cancel safety
    /// May be dropped and called again at any time.
    /// # Errors
    /// If the store cannot be read, after some seconds of trying; [`ErrorKind::Conflict`] if the latch was made with another count.
    /// # Not promised
    /// That it ends if a process dies before it has counted: give it a time ([`wait_within`](Self::wait_within)). A latch that was
    /// open for less than 250 ms before a [`reset`](Self::reset) may not be seen open.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let ready = client.latch("ready", 1);
    /// let (waited, counted) = tokio::join!(ready.wait(), ready.count_down());
    /// # waited?; counted?;
    /// # Ok(()) }
    /// ```
    pub async fn wait(&self) -> Result<()> {
        let before = self.shared.open.load(Ordering::Acquire);
        let _looking = self.shared.looking.lock().await;
        let mut looks = Looks::new();
        // Another task that looked for this one may have seen it open meanwhile.
        while self.shared.open.load(Ordering::Acquire) == before {
            if looks.bear(self.left().await)? == Some(0) {
                let _ = self.shared.open.fetch_add(1, Ordering::AcqRel);
                break;
            }
            let _ = looks.pause().await;
        }
        Ok(())
    }

    /// Like [`wait`](Self::wait), for at most this long: whether it is open.
    ///
    /// # Ordering
    /// As [`wait`](Self::wait).
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    /// # Errors
    /// As [`wait`](Self::wait).
    /// # Not promised
    /// That "not open" is still true when it is told.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// use std::time::Duration;
    /// assert!(!client.latch("ready", 1).wait_within(Duration::from_millis(10)).await?);
    /// # Ok(()) }
    /// ```
    pub async fn wait_within(&self, patience: Duration) -> Result<bool> {
        match tokio::time::timeout(patience, self.wait()).await {
            Ok(open) => open.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Lets it begin anew: so many are left as it was made with.
    ///
    /// # Ordering
    /// As [`Mutex::lock`].
    /// # Cancel safety
    /// Dropping the future gives the lock back; it may have been reset.
    /// # Errors
    /// Those of the lock and of the store.
    /// # Not promised
    /// That those who wait have seen it open before.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let ready = client.latch("ready", 1);
    /// ready.count_down().await?;
    /// ready.reset().await?;
    /// assert_eq!(ready.left().await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn reset(&self) -> Result<()> {
        let store = self.client.store()?;
        let guard = self.lock.lock().await?;
        store::put(&*store, &guard, None, None).await?;
        guard.release().await.map(drop)
    }

    fn check(&self) -> Result<()> {
        let what = match () {
            () if self.count == 0 => "a latch of 0 is open before it is counted: give at least 1",
            () if self.keep.is_zero() => "a count that is kept for no time never comes to nothing",
            () => return Ok(()),
        };
        Err(Error::new(ErrorKind::Invalid, Step::Store, what))
    }

    fn read(&self, entry: Option<Entry>) -> Result<u32> {
        let Some(entry) = entry else {
            return Ok(self.count);
        };
        let what = match numbers(&entry.value) {
            Some((left, of)) if of == self.count => return Ok(left),
            Some((_, of)) => {
                let mine = self.count;
                format!("the latch was made with {of}, and this handle with {mine}: use one number")
            }
            None => "the store holds something else than a latch under this name".to_owned(),
        };
        Err(Error::new(ErrorKind::Conflict, Step::Store, what).of(&Name::new(&self.name)?))
    }
}

/// How many are left, of how many.
pub(super) fn numbers(value: &[u8]) -> Option<(u32, u32)> {
    let (left, of) = std::str::from_utf8(value).ok()?.split_once(" of ")?;
    Some((left.parse().ok()?, of.parse().ok()?))
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Latch({:?}, {})", self.name, self.count)
    }
}
