//! One leader at a time.

use std::fmt;
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior};

use super::Mutex;
use crate::client::Client;
use crate::engine::{Identity, Query};
use crate::error::{Error, ErrorKind, Result};
use crate::fence::Fence;
use crate::guard::{Guard, Released};
use crate::name::Name;

/// One leader at a time, in terms: a term is a fence, and every later term is larger.
///
/// The leader holds the [`strict`](Mutex::strict) mutex of the election's name. It shows what its client calls itself:
/// [`Identity::called`] an address, a zone or a version, given to [`ConnectOptions::identity`](crate::ConnectOptions::identity).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{Identity, ConnectOptions};
///
/// let me = Identity::of_this_process().called("http://10.0.0.7:8080");
/// let client = ConnectOptions::new().identity(me).connect("memory:").await?;
/// let election = client.election("scheduler");
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
}

/// The longest pause between two campaigns.
const LONGEST: Duration = Duration::from_secs(5);

impl Election {
    /// The first pause after the engine could not be reached; each further one is twice as long.
    pub(crate) const PAUSE: Duration = Duration::from_millis(50);

    pub(crate) fn new(client: Client, name: &str, lease: Duration) -> Self {
        let lock = client.mutex(name).strict();
        Self {
            client,
            name: name.to_owned(),
            lock,
            lease,
        }
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

    /// Campaigns, does the work while it leads, and resigns when the work returns. A leader that loses its term campaigns again,
    /// and the work begins anew with the next term; so it does while the engine cannot be reached, with longer and longer pauses.
    /// A [shutdown](Client::shutdown) waits for the work: let it return when it is [asked](Leadership::asked) to.
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
    /// As [`Mutex::lock`].
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
        let guard = self.lock.lock().await?;
        Ok(Leadership { guard })
    }

    /// The leader as the engine knows it; none if there is none. A leader that died is shown until its lease is over.
    ///
    /// # Ordering
    /// A look at one moment.
    /// # Cancel safety
    /// Changes nothing.
    /// # Errors
    /// If the engine cannot be read.
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
        let latest = holders.max_by_key(|holder| holder.fence);
        Ok(latest.and_then(|holder| {
            Some(Leader {
                term: holder.fence?,
                who: holder.who,
                since: holder.since,
            })
        }))
    }

    /// Follows the leaders, and the times without one. It looks ten times per lease, at most every 50 ms and at least every second.
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
        Leaders {
            election: self.clone(),
            ticks: None,
            last: None,
            failing: false,
        }
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

/// The leader at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// Its term.
    pub term: Fence,
    /// Its process, where the engine knows it: a leader of another library, on a shared layout, may name none.
    pub who: Option<Identity>,
    /// When it joined the line.
    pub since: SystemTime,
}

impl Leader {
    /// What the leader shows: its client's [command](Identity::called).
    pub fn value(&self) -> Option<&str> {
        self.who.as_ref().map(|who| who.command.as_str())
    }
}

/// The leaders of an election, one after the other.
pub struct Leaders {
    election: Election,
    ticks: Option<Interval>,
    /// The answer told last; none before the first.
    last: Option<Option<Leader>>,
    failing: bool,
}

impl Leaders {
    /// Waits until there is another leader than the last one told, or none any more; the first call answers at once.
    ///
    /// # Ordering
    /// Terms only grow.
    /// # Cancel safety
    /// May be dropped and called again at any time: nothing that it would have told is forgotten.
    /// # Errors
    /// If the engine cannot be read: told once, then it goes on looking until it can.
    /// # Not promised
    /// A term shorter than the time between two looks may not be told.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert!(client.election("scheduler").observe().next().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        let lease = self.election.lease;
        let ticks = self.ticks.get_or_insert_with(|| {
            let every = (lease / 10).clamp(Election::PAUSE, Duration::from_secs(1));
            let mut ticks = tokio::time::interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        loop {
            let _ = ticks.tick().await;
            match self.election.leader().await {
                Ok(now) => {
                    self.failing = false;
                    let term = |leader: &Option<Leader>| leader.as_ref().map(|leader| leader.term);
                    if self.last.as_ref().map(term) != Some(term(&now)) {
                        self.last = Some(now.clone());
                        return Ok(now);
                    }
                }
                Err(error) if error.is_transient() && self.failing => {}
                Err(error) => {
                    self.failing = true;
                    return Err(error);
                }
            }
        }
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leaders of {:?}", self.election.name)
    }
}
