//! The kinds that are made of locks, blocking: each call blocks on its async twin.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::Background;
use crate::error::Result;
use crate::guard::Released;
use crate::kinds::{Leader, OnceError, Ran};

/// A number in segments; see [`leasehold::Stock`](crate::Stock).
///
/// ```
/// let client = leasehold::blocking::connect("memory:")?;
/// let stock = client.stock("item:42", 4);
/// stock.refill(10)?;
/// assert!(stock.take(3)?);
/// assert_eq!(stock.total()?, 7);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "stock does nothing until it is asked"]
pub struct Stock {
    twin: crate::Stock,
    background: Arc<Background>,
}

impl Stock {
    pub(super) fn new(twin: crate::Stock, background: &Arc<Background>) -> Self {
        let background = background.clone();
        Self { twin, background }
    }

    /// Takes so many, all or none; see [`leasehold::Stock::take`](crate::Stock::take).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn take(&self, count: u64) -> Result<bool> {
        self.background.block_on(self.twin.take(count))
    }

    /// Adds so many; see [`leasehold::Stock::refill`](crate::Stock::refill).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn refill(&self, count: u64) -> Result<()> {
        self.background.block_on(self.twin.refill(count))
    }

    /// How many there are; see [`leasehold::Stock::total`](crate::Stock::total).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn total(&self) -> Result<u64> {
        self.background.block_on(self.twin.total())
    }
}

impl fmt::Debug for Stock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}

/// One leader at a time; see [`leasehold::Election`](crate::Election).
///
/// ```
/// let client = leasehold::blocking::connect("memory:")?;
/// let election = client.election("scheduler");
/// let mut leaders = election.observe();
/// assert!(leaders.next()?.is_none());
/// let leadership = election.campaign()?;
/// assert_eq!(leaders.next()?.unwrap().term, leadership.term());
/// leadership.resign()?;
/// let term = election.lead(|leadership| leadership.term())?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "an election does nothing until a thread campaigns or asks"]
pub struct Election {
    twin: crate::Election,
    background: Arc<Background>,
}

impl Election {
    pub(super) fn new(twin: crate::Election, background: &Arc<Background>) -> Self {
        let background = background.clone();
        Self { twin, background }
    }

    /// How long a leader that cannot be heard leads.
    pub fn lease(self, lease: Duration) -> Self {
        let twin = self.twin.lease(lease);
        Self { twin, ..self }
    }

    /// What this candidate shows while it leads; see [`leasehold::Election::value`](crate::Election::value).
    pub fn value(self, value: impl Into<String>) -> Self {
        let twin = self.twin.value(value);
        Self { twin, ..self }
    }

    /// Campaigns, does the work and resigns; see [`leasehold::Election::lead`](crate::Election::lead). The work looks at its leadership: a
    /// blocking closure cannot be ended from outside. If the term is over when it returns, it is begun anew in the next term.
    ///
    /// # Errors
    /// Those of the async call.
    pub fn lead<T>(&self, mut work: impl FnMut(&Leadership) -> T) -> Result<T> {
        let mut pause = crate::Election::PAUSE;
        loop {
            let error = match self.campaign() {
                Ok(leadership) => {
                    pause = crate::Election::PAUSE;
                    let done = work(&leadership);
                    match leadership.check() {
                        Ok(()) => {
                            // The background goes on where the engine cannot be told.
                            let _ = leadership.resign();
                            return Ok(done);
                        }
                        Err(lost) => lost,
                    }
                }
                Err(error) => error,
            };
            pause = self.background.block_on(self.twin.again(error, pause))?;
        }
    }

    /// Waits until this thread leads; see [`leasehold::Election::campaign`](crate::Election::campaign).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn campaign(&self) -> Result<Leadership> {
        Ok(Leadership {
            twin: self.background.block_on(self.twin.campaign())?,
            background: self.background.clone(),
        })
    }

    /// The leader as the engine knows it; see [`leasehold::Election::leader`](crate::Election::leader).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn leader(&self) -> Result<Option<Leader>> {
        self.background.block_on(self.twin.leader())
    }

    /// Follows the leaders; see [`leasehold::Election::observe`](crate::Election::observe).
    pub fn observe(&self) -> Leaders {
        Leaders {
            twin: self.twin.observe(),
            background: self.background.clone(),
        }
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}

/// A term of office; everything but the resignation is that of [`leasehold::Leadership`](crate::Leadership).
#[must_use = "a leadership that is dropped at once resigns at once"]
pub struct Leadership {
    // First: it is dropped first.
    twin: crate::Leadership,
    background: Arc<Background>,
}

impl Leadership {
    /// Ends the term and says whether it had been lost before.
    ///
    /// # Errors
    /// If the engine could not be told. The background goes on trying until the lease ends.
    pub fn resign(self) -> Result<Released> {
        self.background.block_on(self.twin.resign())
    }
}

impl Deref for Leadership {
    type Target = crate::Leadership;
    fn deref(&self) -> &Self::Target {
        &self.twin
    }
}

/// The leaders of an election, one after the other; see [`leasehold::Leaders`](crate::Leaders).
pub struct Leaders {
    twin: crate::Leaders,
    background: Arc<Background>,
}

impl Leaders {
    /// Waits for a change; see [`leasehold::Leaders::next`](crate::Leaders::next).
    ///
    /// # Errors
    /// Those of the async call.
    #[expect(
        clippy::should_implement_trait,
        reason = "it never ends, and it may fail"
    )]
    pub fn next(&mut self) -> Result<Option<Leader>> {
        self.background.block_on(self.twin.next())
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}

/// Work that is done once per key; see [`leasehold::Once`](crate::Once).
///
/// ```
/// use leasehold::Ran;
/// use std::time::Duration;
///
/// let client = leasehold::blocking::connect("memory:")?;
/// let once = client.once("mail:7", Duration::from_secs(60));
/// assert_eq!(once.run(|_| Ok::<_, leasehold::Error>("sent"))?, Ran::Done("sent"));
/// assert!(matches!(once.try_run(|_| Ok::<_, leasehold::Error>(""))?, Ran::AlreadyDone(_)));
/// once.forget()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is done until it is run"]
pub struct Once {
    twin: crate::Once,
    background: Arc<Background>,
}

impl Once {
    pub(super) fn new(twin: crate::Once, background: &Arc<Background>) -> Self {
        let background = background.clone();
        Self { twin, background }
    }

    /// Notes the work before it begins; see [`leasehold::Once::at_most_once`](crate::Once::at_most_once).
    pub fn at_most_once(self) -> Self {
        let twin = self.twin.at_most_once();
        Self { twin, ..self }
    }

    /// Does the work unless it was done; see [`leasehold::Once::run`](crate::Once::run). The work looks at its guard: a blocking closure
    /// cannot be ended from outside.
    ///
    /// # Errors
    /// Those of the async call.
    pub fn run<T: AsRef<[u8]>, E>(
        &self,
        work: impl FnOnce(&crate::Guard) -> Result<T, E>,
    ) -> Result<Ran<T>, OnceError<T, E>> {
        self.run_or_not(true, work)
    }

    /// Like [`run`](Self::run), without waiting; see [`leasehold::Once::try_run`](crate::Once::try_run).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn try_run<T: AsRef<[u8]>, E>(
        &self,
        work: impl FnOnce(&crate::Guard) -> Result<T, E>,
    ) -> Result<Ran<T>, OnceError<T, E>> {
        self.run_or_not(false, work)
    }

    /// The work is done outside of the runtime: it may block.
    fn run_or_not<T: AsRef<[u8]>, E>(
        &self,
        waits: bool,
        work: impl FnOnce(&crate::Guard) -> Result<T, E>,
    ) -> Result<Ran<T>, OnceError<T, E>> {
        let begun = self.background.block_on(self.twin.begin(waits));
        let guard = match begun.map_err(OnceError::<T, E>::lock)? {
            Ok(guard) => guard,
            Err(ran) => return Ok(ran),
        };
        let done = work(&guard);
        let finished = self.background.wait_for(self.twin.finish(guard, done));
        finished.map_err(OnceError::<T, E>::lock)?
    }

    /// Forgets that the work was done or begun; see [`leasehold::Once::forget`](crate::Once::forget).
    ///
    /// # Errors
    /// Those of the async call.
    pub fn forget(&self) -> Result<()> {
        self.background.block_on(self.twin.forget())
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.twin.fmt(f)
    }
}
