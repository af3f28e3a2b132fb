//! A number in segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{MultiGuard, Striped};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::guard::Guard;
use crate::name::Name;
use crate::store::{self, Entry, Store};

/// Stock in segments: a number that is spread over several locks, so that many can take from it side by side.
///
/// Segment `i` of `NAME` is under the lock of stripe `i` ([`Striped`]) and is kept in the client's [store](crate::store) under the
/// same name, as decimal text. It never falls below zero, and what one call adds or takes is not overwritten by another: each
/// write shows the fence of its lock, and a late one is refused. All processes must use the same number of segments; to use
/// more is safe once all do, to use fewer hides the rest.
///
/// The number is in the store, the sale is elsewhere: a process that dies between [`take`](Self::take) and writing the sale down has
/// taken without selling. Where both are in one database, a transaction there (`leasehold::sql`) has no such gap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let stock = client.stock("item:42", 4);
/// stock.refill(10).await?;
/// assert!(stock.take(1).await?);
/// assert!(stock.take(8).await?); // from several segments
/// assert!(!stock.take(2).await?); // one is left
/// assert_eq!(stock.total().await?, 1);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "stock does nothing until it is asked"]
pub struct Stock(Arc<Segments>);

#[derive(Debug)]
struct Segments {
    locks: Striped,
    store: Result<Arc<dyn Store>>,
    /// What each segment had when this process last saw it: one that had too little is looked at before it is locked.
    seen: Vec<AtomicU64>,
}

/// How a segment answered.
enum Answer {
    Taken,
    /// It has too little.
    Short,
    /// Another task holds its lock.
    Busy,
}

impl Stock {
    pub(crate) fn new(locks: Striped, store: Result<Arc<dyn Store>>) -> Self {
        let seen = (0..locks.count()).map(|_| AtomicU64::new(u64::MAX));
        let seen = seen.collect();
        Self(Arc::new(Segments { locks, store, seen }))
    }

    /// Takes so many, all or none: whether there were enough.
    ///
    /// # Ordering
    /// Segments that no task of this process uses come first, those that are locked last. If no segment has enough alone, all
    /// of them are locked and it is taken from several.
    /// # Cancel safety
    /// Dropping the future gives the locks back. It may have taken what it was to take, or from several segments a part of it: then
    /// that is gone.
    /// # Errors
    /// Those of the lock and of the store. Unless the error [may have happened](Error::may_have_happened), nothing was taken.
    /// # Not promised
    /// First come, first served between takes: a later one may find a segment sooner. While a refill is under way a take of one may
    /// be told that there is none: it saw each segment empty, one after the other, and the first of them may be full by then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(!client.stock("sold-out", 4).take(1).await?);
    /// # Ok(()) }
    /// ```
    pub async fn take(&self, count: u64) -> Result<bool> {
        if count == 0 {
            let what = "nothing was to be taken: take at least one";
            return Err(Error::new(ErrorKind::Invalid, Step::Claim, what));
        }
        let mut busy = Vec::new();
        for segment in self.0.locks.order() {
            match self.take_from(segment, count, false).await? {
                Answer::Taken => return Ok(true),
                Answer::Busy => busy.push(segment),
                Answer::Short => {}
            }
        }
        for segment in busy {
            if let Answer::Taken = self.take_from(segment, count, true).await? {
                return Ok(true);
            }
        }
        match count {
            // Each segment was seen empty.
            1 => Ok(false),
            _ => self.take_from_all(count).await,
        }
    }

    /// Adds so many, spread over all segments.
    ///
    /// # Ordering
    /// Under the locks of all segments.
    /// # Cancel safety
    /// Dropping the future gives the locks back; a part may have been added.
    /// # Errors
    /// Those of the lock and of the store; the error says how many were added before it.
    /// # Not promised
    /// That segments are level afterwards.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// client.stock("item", 4).refill(100).await?;
    /// # Ok(()) }
    /// ```
    pub async fn refill(&self, count: u64) -> Result<()> {
        let all = self.0.locks.all().lock().await?;
        let had = self.read_all(&all).await?;
        let room = had.iter().try_fold(count, |sum, had| sum.checked_add(*had));
        if room.is_none() {
            let what = "so many are more than a stock can count: refill fewer";
            return Err(Error::new(ErrorKind::Invalid, Step::Store, what));
        }
        let (each, mut over, mut added) = (count / had.len() as u64, count % had.len() as u64, 0);
        for (guard, had) in all.guards().iter().zip(had) {
            let more = each + u64::from(over > 0);
            over = over.saturating_sub(1);
            if more > 0 {
                let written = self.write(guard, had + more).await;
                written.map_err(|error| error.noting(&format!("{added} of {count} were added")))?;
                added += more;
            }
        }
        self.0
            .seen
            .iter()
            .for_each(|seen| seen.store(u64::MAX, Ordering::Relaxed));
        let _ = all.release().await?;
        Ok(())
    }

    /// How many there are, counted under the locks of all segments.
    ///
    /// # Ordering
    /// After every take and refill that returned before it was called.
    /// # Cancel safety
    /// Dropping the future gives the locks back.
    /// # Errors
    /// Those of the lock and of the store.
    /// # Not promised
    /// That it is still so many when it is told.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert_eq!(client.stock("item", 4).total().await?, 0);
    /// # Ok(()) }
    /// ```
    pub async fn total(&self) -> Result<u64> {
        let all = self.0.locks.all().lock().await?;
        let total = self
            .read_all(&all)
            .await?
            .into_iter()
            .fold(0, u64::saturating_add);
        let _ = all.release().await?;
        Ok(total)
    }

    fn store(&self) -> Result<&dyn Store> {
        self.0.store.as_deref().map_err(Error::again)
    }

    async fn take_from(&self, segment: usize, count: u64, waits: bool) -> Result<Answer> {
        let (lock, seen) = (self.0.locks.stripe(segment), &self.0.seen[segment]);
        if seen.load(Ordering::Relaxed) < count
            && let Some(name) = lock.name()
        {
            let has = number(self.store()?.get(name).await?, name)?;
            seen.store(has, Ordering::Relaxed);
            if has < count {
                return Ok(Answer::Short);
            }
        }
        let guard = match waits {
            true => lock.lock().await?,
            false => match lock.try_lock().await? {
                Some(guard) => guard,
                None => return Ok(Answer::Busy),
            },
        };
        let has = self.read(&guard).await?;
        let left = has.checked_sub(count);
        if let Some(left) = left {
            self.write(&guard, left).await?;
        }
        seen.store(left.unwrap_or(has), Ordering::Relaxed);
        // The number is written and its fence was the latest: a lock that ends now takes nothing back.
        let _ = guard.release().await;
        Ok(match left {
            Some(_) => Answer::Taken,
            None => Answer::Short,
        })
    }

    async fn take_from_all(&self, count: u64) -> Result<bool> {
        let all = self.0.locks.all().lock().await?;
        let had = self.read_all(&all).await?;
        let enough = had.iter().fold(0, |sum: u64, had| sum.saturating_add(*had)) >= count;
        let mut left = if enough { count } else { 0 };
        let segments: Vec<_> = all.guards().iter().zip(had).collect();
        for (at, (guard, had)) in segments.iter().enumerate() {
            let part = left.min(*had);
            left -= part;
            if part == 0 {
                continue;
            }
            if let Err(error) = self.write(guard, had - part).await {
                // All or none: what was taken before is put back.
                for (guard, had) in &segments[..=at] {
                    let back = self.write(guard, *had).await;
                    back.map_err(|back| back.because(error.again()).perhaps())?;
                }
                return Err(error);
            }
        }
        let _ = all.release().await;
        Ok(enough)
    }

    async fn read_all(&self, all: &MultiGuard) -> Result<Vec<u64>> {
        let mut numbers = Vec::with_capacity(all.guards().len());
        for guard in all.guards() {
            numbers.push(self.read(guard).await?);
        }
        Ok(numbers)
    }

    /// Shows the fence before the read: an earlier holder's write comes before it or not at all.
    async fn read(&self, guard: &Guard) -> Result<u64> {
        let shown = self.store()?.show(guard.name(), guard.fence()).await?;
        let entry = shown.map_err(|stale| store::lost(stale, guard.name()))?;
        number(entry, guard.name())
    }

    async fn write(&self, guard: &Guard, number: u64) -> Result<()> {
        let text = number.to_string();
        store::put(self.store()?, guard, Some(text.as_bytes()), None).await
    }
}

fn number(entry: Option<Entry>, name: &Name) -> Result<u64> {
    let Some(entry) = entry else {
        return Ok(0);
    };
    let text = std::str::from_utf8(&entry.value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| {
        let what = "the store holds something else than a number under this name: use another name, or remove it there";
        Error::new(ErrorKind::Conflict, Step::Store, what).of(name)
    })
}
