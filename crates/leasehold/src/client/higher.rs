//! The kinds that are made of locks.

use std::sync::Arc;
use std::time::Duration;

use super::Client;
use crate::error::{Error, ErrorKind, Result, Step};
#[cfg(feature = "cached")]
use crate::kinds::Cached;
use crate::kinds::{Barrier, Election, Handle, Latch, Mutex, Once, Stock, Striped};
use crate::store::Store;
use crate::turns::Terms;

impl Client {
    /// A number in segments, each behind a lock of its own: stock that many buy at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let stock = client.stock("item:42", 16);
    /// stock.refill(100).await?;
    /// assert!(stock.take(1).await?);
    /// # Ok(()) }
    /// ```
    pub fn stock(&self, name: impl AsRef<str>, segments: u32) -> Stock {
        let locks = Striped::new(
            &self.0.turns,
            name.as_ref(),
            segments,
            self.guarding_terms(),
        );
        Stock::new(locks, self.store())
    }

    /// One leader at a time, in terms.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// client.election("scheduler").lead(async |leadership| {
    ///     println!("leading in term {}", leadership.term());
    /// }).await?;
    /// # Ok(()) }
    /// ```
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.clone(), name.as_ref(), self.0.terms.lease)
    }

    /// Work that is done once per key within a time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// let once = client.once("mail:7", Duration::from_secs(86_400));
    /// once.run(async |_| Ok::<_, leasehold::Error>("sent")).await?;
    /// # Ok(()) }
    /// ```
    pub fn once(&self, key: impl AsRef<str>, keep: Duration) -> Once {
        let lock = Mutex::new(self.guarding(&format!("once:{}", key.as_ref())));
        Once::new(lock, self.store(), keep, &self.0.who)
    }

    /// A count that opens for all who wait, once it was counted down so many times.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let ready = client.latch("ready", 1);
    /// ready.count_down().await?;
    /// ready.wait().await?;
    /// # Ok(()) }
    /// ```
    pub fn latch(&self, name: impl AsRef<str>, count: u32) -> Latch {
        Latch::new(self.clone(), name.as_ref(), count)
    }

    /// So many arrive, and all go; and again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let step = client.barrier("step", 2);
    /// let (one, two) = tokio::join!(step.arrive(), step.arrive());
    /// assert_eq!(one?.generation, two?.generation);
    /// # Ok(()) }
    /// ```
    pub fn barrier(&self, name: impl AsRef<str>, count: u32) -> Barrier {
        Barrier::new(self.clone(), name.as_ref(), count, self.0.terms.lease)
    }

    /// A value that one process of the fleet loads and all of them use. Handles of one name and one type share what this client holds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let answer = client.cached("answer").get_or_load(async || Ok::<_, leasehold::Error>(Some(42))).await?;
    /// assert_eq!(answer.as_deref(), Some(&42));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "cached")]
    pub fn cached<T: Send + Sync + 'static>(&self, name: impl AsRef<str>) -> Cached<T> {
        Cached::new(self.clone(), self.0.layer.clone(), name.as_ref())
    }

    /// The terms of a lock that guards a value of the store: the store remembers its fences, so one that was made up would keep
    /// the true holders out.
    fn guarding_terms(&self) -> Terms {
        Terms {
            confirmed: true,
            ..self.0.terms.clone()
        }
    }

    /// A lock that guards a value of the store.
    pub(crate) fn guarding(&self, name: &str) -> Handle {
        Handle::new(&self.0.turns, name, self.guarding_terms())
    }

    /// Where kinds that remember something keep it; the reason if there is no such place.
    pub(crate) fn store(&self) -> Result<Arc<dyn Store>> {
        self.0.store.clone().ok_or_else(|| {
            let kind = self.0.engine.kind();
            let what = format!(
                "{kind} has no store of values, which this kind needs beside the lock: give one to ConnectOptions::store"
            );
            Error::new(ErrorKind::Unsupported, Step::Store, what)
        })
    }
}
