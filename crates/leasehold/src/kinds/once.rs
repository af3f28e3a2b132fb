//! Work that is done once per key.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Mutex, RunError};
use crate::engine::Identity;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::guard::Guard;
use crate::store::{self, Entry, Store};

/// Work that is done once per key within a time: the first request does it, under the lock `once:KEY`, and the client's
/// [store](crate::store) remembers that it is done, with its result. A request after that gets
/// [`Ran::AlreadyDone`] in one round trip, and no lock. A run that failed does not count as done. It is kept for
/// [`store::LONGEST`](crate::store::LONGEST) at most.
///
/// # What "once" means
/// A process can die between the work and the note that it is done. So the caller chooses what happens then:
///
/// | | noted | the process dies during the work, or loses its lock | what to take it for |
/// |---|---|---|---|
/// | at least once (unless said otherwise) | after the work | the next request does the work again | work that may be repeated |
/// | [`at_most_once`](Self::at_most_once) | begun before the work, done after it | the next request gets [`Ran::Interrupted`]: a person or a program decides ([`forget`](Self::forget)) | work that must not be repeated |
/// | exactly once | in the transaction of the work | neither is there | an effect in one database: `leasehold::sql::mark` |
///
/// An `Err` of the work says that it did not happen: the next request does it, at most once or not. Work whose outcome is not known (a
/// payment that timed out) returns `Ok` with a word for that. A note is as durable as the store: one that forgets its last writes in a
/// crash or a failover forgets notes, and the work is done again.
///
/// A process that stands still for longer than its lease may go on after another one has begun. Its note is refused by its
/// fence; its effect is refused only by a resource that checks fences, so give it [`Guard::fence`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::Ran;
/// use std::time::Duration;
///
/// let client = leasehold::connect("memory:").await?;
/// let packet = client.once("red-packet:7:user:3", Duration::from_secs(86_400));
/// let draw = async |_: &leasehold::Guard| Ok::<_, leasehold::Error>("5 yuan");
/// assert!(matches!(packet.run(draw).await?, Ran::Done("5 yuan")));
/// let Ran::AlreadyDone(done) = packet.run(draw).await? else { panic!("drawn twice") };
/// assert_eq!(done.result, b"5 yuan");
/// println!("drawn at {:?} by {}", done.at, done.by);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is done until it is run"]
pub struct Once(Arc<Parts>);

#[derive(Debug, Clone)]
struct Parts {
    lock: Mutex,
    store: Arc<Result<Arc<dyn Store>>>,
    keep: Duration,
    /// This process, as later requests are told.
    by: String,
    at_most: bool,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ran<T> {
    /// This request did the work.
    Done(T),
    /// An earlier request did it.
    AlreadyDone(Done),
    /// Another request is doing it now. Told by [`Once::try_run`] alone; the others wait.
    InProgress,
    /// An earlier request began it and did not say how it ended. Told to [`at_most_once`](Once::at_most_once) alone.
    Interrupted(Done),
}

/// What is remembered of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Done {
    /// The result; empty for a run that was interrupted.
    pub result: Vec<u8>,
    /// When it was noted, by the store's clock.
    pub at: SystemTime,
    /// The process: its machine and its number.
    pub by: String,
    /// The fence of the lock.
    pub fence: Fence,
}

/// Why a run failed.
pub enum OnceError<T, E> {
    /// The work failed: it does not count as done.
    Work(E),
    /// The lock or the store failed. If the work was done, [`RunError::done`] has its result, and it may not be noted.
    Lock(RunError<T>),
}

const BEGUN: &str = "begun ";
const DONE: &str = "done ";

impl Once {
    pub(crate) fn new(
        lock: Mutex,
        store: Result<Arc<dyn Store>>,
        keep: Duration,
        who: &Identity,
    ) -> Self {
        Self(Arc::new(Parts {
            lock,
            store: Arc::new(store),
            keep,
            by: who.to_string(),
            at_most: false,
        }))
    }

    /// Notes the work before it begins: a run that was interrupted is not repeated. One that failed is: its `Err` says that the work did
    /// not happen.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// use leasehold::Ran;
    /// use std::{future::pending, time::Duration};
    ///
    /// let once = client.once("payment:9", Duration::from_secs(86_400)).at_most_once();
    /// let pay = once.run(async |_| pending::<Result<&str, ()>>().await);
    /// assert!(tokio::time::timeout(Duration::from_millis(20), pay).await.is_err()); // the future is dropped
    /// let again = once.run(async |_| Ok::<_, ()>("paid")).await.unwrap();
    /// assert!(matches!(again, Ran::Interrupted(_)));
    /// # Ok(()) }
    /// ```
    pub fn at_most_once(self) -> Self {
        let at_most = true;
        Self(Arc::new(Parts {
            at_most,
            ..Parts::clone(&self.0)
        }))
    }

    /// Does the work unless it was done; waits while another request is doing it. An empty result (`""`) is one that is not wanted.
    ///
    /// # Ordering
    /// Requests that come meanwhile wait, first come, first served, and then see how the first one ended.
    /// # Cancel safety
    /// Dropping the future drops the work. At least once: nothing is noted. At most once: it is [interrupted](Ran::Interrupted).
    /// # Errors
    /// [`OnceError::Work`] with the work's own error; [`OnceError::Lock`] if the lock was lost (the work's future is dropped where it
    /// stands), or the engine or the store failed.
    /// # Not promised
    /// That a key is remembered for longer than it was asked to be.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// let once = client.once("mail:7", Duration::from_secs(60));
    /// let failed = once.run(async |_| Err::<&str, _>("no connection")).await;
    /// assert!(failed.is_err());
    /// let ran = once.run(async |_| Ok::<_, leasehold::Error>("")).await?; // it may be tried again
    /// assert_eq!(ran, leasehold::Ran::Done(""));
    /// # Ok(()) }
    /// ```
    pub async fn run<T, E, F>(&self, work: F) -> Result<Ran<T>, OnceError<T, E>>
    where
        T: AsRef<[u8]>,
        F: AsyncFnOnce(&Guard) -> Result<T, E>,
    {
        self.run_or_not(true, work).await
    }

    /// Like [`run`](Self::run), but does not wait: while another request is doing the work, [`Ran::InProgress`].
    ///
    /// # Ordering
    /// None: it never waits.
    /// # Cancel safety
    /// As [`run`](Self::run).
    /// # Errors
    /// As [`run`](Self::run).
    /// # Not promised
    /// That the other request succeeds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// let once = client.once("mail:7", Duration::from_secs(60));
    /// let ran = once.try_run(async |_| Ok::<_, leasehold::Error>("")).await?;
    /// # Ok(()) }
    /// ```
    pub async fn try_run<T, E, F>(&self, work: F) -> Result<Ran<T>, OnceError<T, E>>
    where
        T: AsRef<[u8]>,
        F: AsyncFnOnce(&Guard) -> Result<T, E>,
    {
        self.run_or_not(false, work).await
    }

    /// Forgets that the work was done or begun, under its lock; waits while a request is doing it.
    ///
    /// # Ordering
    /// As [`Mutex::lock`].
    /// # Cancel safety
    /// Dropping the future gives the lock back; it may have been forgotten.
    /// # Errors
    /// Those of the lock and of the store.
    /// # Not promised
    /// That the effect of the work is undone.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// client.once("mail:7", Duration::from_secs(60)).forget().await?;
    /// # Ok(()) }
    /// ```
    pub async fn forget(&self) -> Result<()> {
        let store = self.store()?;
        let guard = self.0.lock.lock().await?;
        store::put(store, &guard, None, None).await?;
        guard.release().await.map(drop)
    }

    async fn run_or_not<T, E, F>(&self, waits: bool, work: F) -> Result<Ran<T>, OnceError<T, E>>
    where
        T: AsRef<[u8]>,
        F: AsyncFnOnce(&Guard) -> Result<T, E>,
    {
        let guard = match self.begin(waits).await.map_err(OnceError::<T, E>::lock)? {
            Ok(guard) => guard,
            Err(ran) => return Ok(ran),
        };
        let done = tokio::select! {
            biased;
            lost = guard.lost() => return Err(OnceError::lock(lost)),
            done = work(&guard) => done,
        };
        self.finish(guard, done).await
    }

    /// Notes how the work ended, and gives the lock back.
    pub(crate) async fn finish<T, E>(
        &self,
        guard: Guard,
        done: Result<T, E>,
    ) -> Result<Ran<T>, OnceError<T, E>>
    where
        T: AsRef<[u8]>,
    {
        match done {
            Ok(done) => match self.note(&guard, done.as_ref()).await {
                Ok(()) => {
                    self.end(guard).await;
                    Ok(Ran::Done(done))
                }
                Err(error) => Err(OnceError::Lock(RunError::after(error, done))),
            },
            Err(failed) => {
                if self.0.at_most {
                    self.unnote(&guard).await;
                }
                self.end(guard).await;
                Err(OnceError::Work(failed))
            }
        }
    }

    /// The lock, with the work noted as begun if that is wanted; or how the request ends without work.
    pub(crate) async fn begin<T>(&self, waits: bool) -> Result<std::result::Result<Guard, Ran<T>>> {
        let (store, lock) = (self.store()?, &self.0.lock);
        // A duplicate is refused without the lock.
        let noted = match lock.name() {
            Some(name) => self.ended(store.get(name).await?),
            None => None,
        };
        if let Some(ran @ Ran::AlreadyDone(_)) = noted {
            return Ok(Err(ran));
        }
        let guard = match waits {
            true => lock.lock().await?,
            false => match lock.try_lock().await? {
                Some(guard) => guard,
                None => return Ok(Err(Ran::InProgress)),
            },
        };
        let shown = store.show(guard.name(), guard.fence()).await?;
        let shown = shown.map_err(|stale| store::lost(stale, guard.name()))?;
        if let Some(ran) = self.ended(shown) {
            self.end(guard).await;
            return Ok(Err(ran));
        }
        if self.0.at_most {
            // Not repeated: more is written in this turn.
            let (text, keep) = (format!("{BEGUN}{}\n", self.0.by), Some(self.0.keep));
            let begun = store.put(guard.name(), guard.fence(), Some(text.as_bytes()), keep);
            match begun.await {
                Ok(Ok(())) => {}
                Ok(Err(stale)) => return Err(store::lost(stale, guard.name())),
                Err(error) => {
                    self.unnote(&guard).await;
                    return Err(error);
                }
            }
        }
        Ok(Ok(guard))
    }

    /// How a request ends that finds this in the store.
    fn ended<T>(&self, entry: Option<Entry>) -> Option<Ran<T>> {
        let entry = entry?;
        let (done, by, result) = noted(&entry.value)?;
        let noted = Done {
            result: result.to_vec(),
            at: entry.written,
            by: by.to_owned(),
            fence: entry.fence,
        };
        match done {
            true => Some(Ran::AlreadyDone(noted)),
            false => self.0.at_most.then_some(Ran::Interrupted(noted)),
        }
    }

    async fn note(&self, guard: &Guard, result: &[u8]) -> Result<()> {
        let mut value = format!("{DONE}{}\n", self.0.by).into_bytes();
        value.extend_from_slice(result);
        store::put(self.store()?, guard, Some(&value), Some(self.0.keep)).await
    }

    /// The work has not happened: the next request may do it. If that cannot be noted it counts as interrupted.
    async fn unnote(&self, guard: &Guard) {
        let removed = match self.store() {
            Ok(store) => store::put(store, guard, None, None).await,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, name = %guard.name(), "work that did not happen counts as interrupted");
        }
    }

    /// Gives the lock back; the background goes on where the engine cannot be told.
    async fn end(&self, guard: Guard) {
        if let Err(error) = guard.release().await {
            tracing::debug!(%error, "a release is left to the background");
        }
    }

    fn store(&self) -> Result<&dyn Store> {
        if self.0.keep.is_zero() {
            let what = "a key that is kept for no time is never done already: keep it for longer";
            return Err(Error::new(ErrorKind::Invalid, Step::Store, what));
        }
        let store = self.0.store.as_ref().as_ref();
        store.map(|store| &**store).map_err(Error::again)
    }
}

/// Whether the work is noted as done, by which process, and its result.
pub(super) fn noted(value: &[u8]) -> Option<(bool, &str, &[u8])> {
    let end = value.iter().position(|byte| *byte == b'\n')?;
    let (head, result) = (std::str::from_utf8(&value[..end]).ok()?, &value[end + 1..]);
    let done = head.strip_prefix(DONE).map(|by| (true, by, result));
    done.or_else(|| Some((false, head.strip_prefix(BEGUN)?, result)))
}

impl<T, E> OnceError<T, E> {
    pub(crate) const fn lock(error: Error) -> Self {
        Self::Lock(RunError::before(error))
    }
}

impl<T, E: Into<Error>> From<OnceError<T, E>> for Error {
    fn from(failed: OnceError<T, E>) -> Self {
        match failed {
            OnceError::Work(error) => error.into(),
            OnceError::Lock(failed) => failed.error,
        }
    }
}

impl<T, E: fmt::Display> fmt::Display for OnceError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(error) => error.fmt(f),
            Self::Lock(failed) => failed.fmt(f),
        }
    }
}

impl<T, E: fmt::Debug> fmt::Debug for OnceError<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Work(error) => write!(f, "the work failed: {error:?}"),
            Self::Lock(failed) => failed.fmt(f),
        }
    }
}

impl<T, E: std::error::Error> std::error::Error for OnceError<T, E> {}
