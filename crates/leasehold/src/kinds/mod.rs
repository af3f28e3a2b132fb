//! The kinds of locks that callers use: each is a mode of claiming, on the same terms.

mod barrier;
#[cfg(feature = "cached")]
mod cached;
mod election;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzed;
mod latch;
mod lock_options;
mod looks;
mod multi;
mod mutex;
mod once;
mod run;
mod rwlock;
mod semaphore;
mod stock;
mod striped;

use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Sleep;

pub use self::barrier::{Barrier, Passed};
#[cfg(feature = "cached")]
pub(crate) use self::cached::Layer;
#[cfg(feature = "cached")]
pub use self::cached::{Cached, LoadError};
pub use self::election::{Election, Leader, Leaders, Leadership};
pub use self::latch::Latch;
pub use self::lock_options::LockOptions;
pub use self::multi::{Multi, MultiGuard};
pub use self::mutex::Mutex;
pub use self::once::{Done, Once, OnceError, Ran};
pub use self::run::RunError;
pub(crate) use self::run::was_lost;
pub use self::rwlock::{RwLock, WriteGuard};
pub use self::semaphore::Semaphore;
pub use self::stock::Stock;
pub use self::striped::Striped;
use crate::claim::Mode;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::guard::Guard;
use crate::name::Name;
use crate::turns::{Queue, Request, Terms, Turns};

/// A name on some terms: what every kind is made of.
#[derive(Clone)]
pub(crate) struct Handle {
    target: Target,
    terms: Terms,
    /// While a handle is there, what lingers may be used again.
    _turns: Arc<Turns>,
}

/// A bad name is reported when the lock is asked for, so that handles can be made without a `?`.
#[derive(Clone)]
enum Target {
    Line(Arc<Queue>),
    Bad(String),
    Refused(&'static str),
}

impl Handle {
    pub(crate) fn new(turns: &Arc<Turns>, name: &str, terms: Terms) -> Self {
        let target = match turns.queue(name) {
            Ok(queue) => Target::Line(queue),
            Err(_) => Target::Bad(name.to_owned()),
        };
        Self {
            target,
            terms,
            _turns: turns.clone(),
        }
    }

    /// A handle that says why it cannot be used when the lock is asked for.
    fn refused(turns: &Arc<Turns>, why: &'static str, terms: Terms) -> Self {
        Self {
            target: Target::Refused(why),
            terms,
            _turns: turns.clone(),
        }
    }

    fn is_refused(&self) -> bool {
        matches!(self.target, Target::Refused(_))
    }

    /// The name, if it is one.
    fn name(&self) -> Option<&Name> {
        match &self.target {
            Target::Line(queue) => Some(queue.name()),
            Target::Bad(_) | Target::Refused(_) => None,
        }
    }

    /// How many tasks of this process use the name or wait for it. No round trip.
    fn contention(&self) -> usize {
        match &self.target {
            Target::Line(queue) => queue.contention(),
            Target::Bad(_) | Target::Refused(_) => 0,
        }
    }

    /// Checks the name, the terms and the mode, and builds the request.
    fn request(
        &self,
        mode: Mode,
        waits: bool,
        place: &'static Location<'static>,
    ) -> Result<(&Arc<Queue>, Request)> {
        let queue = match &self.target {
            Target::Line(queue) => queue,
            Target::Bad(name) => {
                return Err(Name::new(name)
                    .err()
                    .unwrap_or_else(|| Error::closed(Step::Name)));
            }
            Target::Refused(why) => {
                return Err(Error::new(ErrorKind::Invalid, Step::Name, *why));
            }
        };
        self.terms.check()?;
        mode.check()?;
        let now = queue.now();
        Ok((queue, Request::new(mode, waits, &self.terms, place, now)))
    }

    async fn take(
        &self,
        mode: Mode,
        waits: bool,
        place: &'static Location<'static>,
    ) -> Result<Option<Guard>> {
        let (queue, request) = self.request(mode, waits, place)?;
        Ok(queue.take(&request).await?.map(Guard::new))
    }

    async fn wait(&self, mode: Mode, place: &'static Location<'static>) -> Result<Guard> {
        let (queue, request) = self.request(mode, true, place)?;
        let turn = queue.take(&request).await?;
        turn.map(Guard::new).ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                Step::Claim,
                "the engine answered busy to a request that waits: ask again",
            )
        })
    }

    async fn within(
        &self,
        mode: Mode,
        patience: Duration,
        place: &'static Location<'static>,
    ) -> Result<Option<Guard>> {
        let late = pin!(tokio::time::sleep(patience));
        self.until(mode, late, place).await
    }

    /// Waits until the timer ends.
    async fn until(
        &self,
        mode: Mode,
        late: Pin<&mut Sleep>,
        place: &'static Location<'static>,
    ) -> Result<Option<Guard>> {
        let (queue, request) = self.request(mode, true, place)?;
        tokio::select! {
            biased;
            taken = queue.take(&request) => Ok(taken?.map(Guard::new)),
            () = late => queue.out_of_time(&request).map(|()| None),
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.target {
            Target::Line(queue) => write!(f, "{:?}", queue.name()),
            Target::Bad(name) => write!(f, "{name:?} (not a name)"),
            Target::Refused(why) => write!(f, "(refused: {why})"),
        }
    }
}

/// The methods that set terms, the same on every kind.
macro_rules! terms {
    () => {
        crate::kinds::terms!(setters);

        /// All terms at once, in place of those of the client; what makes the lock re-entrant stays.
        pub fn options(mut self, options: &crate::LockOptions) -> Self {
            options.apply(&mut self.0.terms);
            self
        }
    };
    (setters) => {
        /// How long the lock lasts after a renewal that got through: 20 ms to 24 h, 10 s unless set. A dead holder
        /// blocks others for at most this long.
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.0.terms.lease = lease;
            self
        }

        /// Whether the lock is renewed while it is held (it is, unless this is set to `false`). Without renewal it
        /// ends one lease after it was granted.
        pub fn keep_alive(mut self, keep_alive: bool) -> Self {
            self.0.terms.keep_alive = keep_alive;
            self
        }

        /// Keeps others out for at least this long after the grant, however soon it is released: for a job that
        /// several machines start "at the same time" by clocks that differ. Kept while this client lives. Longer than
        /// the lease it needs [`keep_alive`](Self::keep_alive): otherwise the lock is refused.
        pub fn min_hold(mut self, min_hold: std::time::Duration) -> Self {
            self.0.terms.min_hold = min_hold;
            self
        }

        /// Keeps the grant for a while after the last release, so that this process can have it again without a
        /// round trip. It is given up at once when another process asks for the name, when this process asks for it
        /// in another way, and when the last client and handle are gone. A try of another process may find it busy
        /// once. A grant that no other task could use does not linger: that of a semaphore's permits, of a
        /// [`strict`](Self::strict) lock, and of one without [`keep_alive`](Self::keep_alive).
        pub fn linger(mut self, linger: std::time::Duration) -> Self {
            self.0.terms.linger = linger;
            self
        }

        /// Every task goes to the engine by itself: first come, first served across all processes, at the price of a
        /// round trip each. Otherwise tasks of one process may take a few turns in a row ([`TurnBound`](crate::TurnBound)).
        pub fn strict(mut self) -> Self {
            self.0.terms.strict = true;
            self
        }

        /// How long a grant may stay in this process, from task to task, while another process waits.
        pub fn bound(mut self, bound: crate::TurnBound) -> Self {
            self.0.terms.bound = bound;
            self
        }
    };
}

/// The methods that make a kind re-entrant.
macro_rules! reentrant {
    () => {
        /// Lets the current tokio task (in the blocking API: the thread) take the lock again while it holds it: one
        /// deeper, same fence, no round trip.
        ///
        /// Two branches of one `join!` are the *same* task and do not exclude each other: that is why this is not
        /// the default. Spawn them, or give each an [`owner`](Self::owner).
        pub fn reentrant(mut self) -> Self {
            self.0.terms.reentrant = crate::turns::Reentrant::Runner;
            self
        }

        /// Like [`reentrant`](Self::reentrant), for an owner that can travel between tasks.
        pub fn owner(mut self, owner: &crate::turns::Owner) -> Self {
            self.0.terms.reentrant = crate::turns::Reentrant::Owner(owner.clone());
            self
        }
    };
}

pub(crate) use {reentrant, terms};
