//! One leader at a time.

mod leaders;

use std::sync::Arc;
use std::time::Duration;

pub use self::leaders::{Leader, Leaders};
use super::Mutex;
use crate::client::Client;
use crate::engine::Query;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::Fence;
use crate::guard::{Guard, Released};
use crate::name::Name;
use crate::store;

/// One leader at a time, in terms: a term is a fence, and every later term is larger.
///
/// The leader holds the [`strict`](Mutex::strict) mutex of the election's name. It may show a [`value`](Self::value): an address, a zone
/// or a version, kept in the client's [store](crate::store). Without one it shows what its client calls itself
/// ([`Identity::called`](crate::Identity::called)).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let election = client.election("scheduler").value("http://10.0.0.7:8080");
/// let shown = election.lead(async |leadership| {
///     let leader = election.leader().await?.expect("this process leads");
///     assert_eq!(leader.term, leadership.term());
///     Ok::<_, leasehold::Error>(leader.value().map(str::to_owned))
/// }).await??;
/// assert_eq!(shown.as_deref(), Some("http://10.0.0.7:8080"));
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "an election does nothing until a task campaigns or asks"]
pub struct Election {
    client: Client,
    name: String,
    lock: Mutex,
    lease: Duration,
    value: Option<Arc<str>>,
}

/// The longest pause between two campaigns.
const LONGEST: Duration = Duration::from_secs(5);

impl Election {
    /// The first pause after the engine could not be reached; each further one is twice as long.
    pub(crate) const PAUSE: Duration = Duration::from_millis(50);

    pub(crate) fn new(client: Client, name: &str, lease: Duration) -> Self {
        let lock = Mutex::new(client.guarding(name)).strict();
        Self {
            client,
            name: name.to_owned(),
            lock,
            lease,
            value: None,
        }
    }

    /// What this candidate shows while it leads, to all who ask for the [leader](Self::leader) or [observe](Self::observe): its address,
    /// say. It is put into the client's [store](crate::store), with the term as its fence, before the work begins; all who ask need
    /// the same store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let leadership = client.election("scheduler").value("10.0.0.7:8080").campaign().await?;
    /// let leader = client.election("scheduler").leader().await?.unwrap();
    /// assert_eq!(leader.value(), Some("10.0.0.7:8080"));
    /// # drop(leadership); Ok(()) }
    /// ```
    pub fn value(self, value: impl Into<String>) -> Self {
        let value = Some(value.into().into());
        Self { value, ..self }
    }

    /// How long a leader that cannot be heard leads: the lease of its lock.
    pub fn lease(self, lease: Duration) -> Self {
        let lock = self.lock.lease(lease);
        Self {
            lock,
            lease,
            ..self
        }
    }

    /// A check's leader that is not renewed.
    #[cfg(feature = "conformance")]
    pub(crate) fn keep_alive(self, keep_alive: bool) -> Self {
        let lock = self.lock.keep_alive(keep_alive);
        Self { lock, ..self }
    }

    /// Campaigns, does the work while it leads, and resigns when the work returns. A leader that loses its term campaigns again,
    /// and the work begins anew with the next term; so it does while the engine cannot be reached, with longer and longer pauses.
    /// A [shutdown](Client::shutdown) waits for the work: let it return when it is [asked](Leadership::release_requested) to.
    ///
    /// # Ordering
    /// First come, first served. When the term is lost the work's future is dropped where it stands, before another can lead.
    /// # Cancel safety
    /// Dropping the future drops the work and resigns in the background.
    /// # Errors
    /// [`ErrorKind::Closed`] when the client is shut down, and what no repetition mends (a bad name, a right that is missing).
    /// A lost term and an engine that cannot be reached are no errors: it campaigns on.
    /// # Not promised
    /// Work that blocks the thread is ended only when it next awaits: send [`term`](Leadership::term) with what must not be late.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let term = client.election("scheduler").lead(async |leadership| leadership.term()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn lead<T, F>(&self, mut work: F) -> Result<T>
    where
        F: AsyncFnMut(&Leadership) -> T,
    {
        let mut pause = Self::PAUSE;
        loop {
            let error = match self.campaign().await {
                Ok(leadership) => {
                    pause = Self::PAUSE;
                    tokio::select! {
                        biased;
                        lost = leadership.lost() => lost,
                        done = work(&leadership) => {
                            leadership.end().await;
                            return Ok(done);
                        }
                    }
                }
                Err(error) => error,
            };
            pause = self.again(error, pause).await?;
        }
    }

    /// Waits before the next campaign, and answers with the pause after it; fails for good if another campaign is of no use.
    pub(crate) async fn again(&self, error: Error, pause: Duration) -> Result<Duration> {
        if !error.is_transient() && error.kind() != ErrorKind::Lost {
            return Err(error);
        }
        tracing::info!(election = self.name, %error, "not leading; campaigning again");
        // At different moments in different processes.
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        Ok((pause * 2).min(LONGEST))
    }

    /// Waits until this task leads.
    ///
    /// # Ordering
    /// First come, first served.
    /// # Cancel safety
    /// Dropping the future leaves the line.
    /// # Errors
    /// As [`Mutex::lock`]; with a [`value`](Self::value) those of the store, too.
    /// # Not promised
    /// That an engine which cannot be reached is waited for: [`lead`](Self::lead) does that.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let leadership = client.election("scheduler").campaign().await?;
    /// leadership.resign().await?;
    /// # Ok(()) }
    /// ```
    pub async fn campaign(&self) -> Result<Leadership> {
        let store = self.value.as_ref().map(|_| self.client.store());
        let store = store.transpose()?;
        let guard = self.lock.lock().await?;
        if let (Some(store), Some(value)) = (store, &self.value) {
            store::put(&*store, &guard, Some(value.as_bytes()), None).await?;
        }
        Ok(Leadership { guard })
    }

    /// The leader as the engine knows it; none if there is none. A leader that died is shown until its lease is over.
    ///
    /// # Ordering
    /// A look at one moment.
    /// # Cancel safety
    /// Changes nothing.
    /// # Errors
    /// If the engine or the store cannot be read. A client without a store, or without rights in it, is told no
    /// [value](Self::value) of an election.
    /// # Not promised
    /// That it still leads when it is told.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.election("scheduler").leader().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let query = Query::name(Name::new(&self.name)?);
        let lines = self.client.inspect(&query).await?;
        let holders = lines.into_iter().flat_map(|line| line.holders);
        // Between two looks of an engine that lists claims one by one, both the old and the new leader may be seen.
        let Some(latest) = holders.max_by_key(|holder| holder.fence) else {
            return Ok(None);
        };
        let Some(term) = latest.fence else {
            return Ok(None);
        };
        Ok(Some(Leader {
            term,
            who: latest.who,
            since: latest.since,
            shown: self.shown(term).await?,
        }))
    }

    /// What the leader of this term shows in the store.
    async fn shown(&self, term: Fence) -> Result<Option<String>> {
        let Ok(store) = self.client.store() else {
            return Ok(None);
        };
        let entry = match store.get(&Name::new(&self.name)?).await {
            Ok(entry) => entry.filter(|entry| entry.fence == term),
            Err(error) if error.kind() == ErrorKind::Denied => None,
            Err(error) => return Err(error),
        };
        Ok(entry.and_then(|entry| String::from_utf8(entry.value).ok()))
    }

    /// Follows the leaders, and the times without one: a [`Stream`](futures_core::Stream) that never ends. It looks ten times per lease, at most every 50 ms and at least every second.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let election = client.election("scheduler");
    /// let mut leaders = election.observe();
    /// assert!(leaders.next().await?.is_none());
    /// let leadership = election.campaign().await?;
    /// assert_eq!(leaders.next().await?.unwrap().term, leadership.term());
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Leaders {
        Leaders::of(self.clone())
    }
}

/// A term of office. Dropping it resigns in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// let election = client.election("scheduler");
/// let first = election.campaign().await?;
/// let term = first.term();
/// first.resign().await?;
/// assert!(election.campaign().await?.term() > term);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "a leadership that is dropped at once resigns at once"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// The term: larger than every earlier one of this election. Send it with what must not be late.
    pub fn term(&self) -> Fence {
        self.guard.fence()
    }

    /// Fails if the term is over. No round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the reason.
    pub fn check(&self) -> Result<()> {
        self.guard.check()
    }

    /// Waits until the term is lost, as [`Guard::lost`]: told before another can lead.
    pub async fn lost(&self) -> Error {
        self.guard.lost().await
    }

    /// Waits until the leader is asked to resign, as [`Guard::release_requested`].
    pub async fn release_requested(&self) {
        self.guard.release_requested().await;
    }

    /// Ends the term and says whether it had been lost before.
    ///
    /// # Ordering
    /// The next in line leads when this returns, if the engine could be reached.
    /// # Cancel safety
    /// Dropping the future leaves it to the background.
    /// # Errors
    /// If the engine could not be told. The background goes on trying until the lease ends.
    /// # Not promised
    /// That another leads at once: there may be no other candidate.
    pub async fn resign(self) -> Result<Released> {
        self.guard.release().await
    }

    /// Resigns after work that is done. The background goes on where the engine cannot be told.
    async fn end(self) {
        if let Err(error) = self.resign().await {
            tracing::debug!(%error, "a resignation is left to the background");
        }
    }
}
