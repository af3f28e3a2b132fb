//! What people call: each kind is a mode of claiming, on the same terms.

mod multi;
mod mutex;
mod rwlock;
mod semaphore;

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

pub use self::multi::{Multi, MultiGuard};
pub use self::mutex::Mutex;
pub use self::rwlock::{RwLock, WriteGuard};
pub use self::semaphore::Semaphore;
use crate::claim::Mode;
use crate::error::{Error, ErrorKind, Result, Step};
use crate::guard::Guard;
use crate::name::Name;
use crate::turns::{Ask, Local, Terms, Turns};

/// A name on some terms: what every kind is made of.
#[derive(Clone)]
pub(crate) struct Handle {
    target: Target,
    terms: Terms,
}

/// A bad name is reported when the lock is asked for, so that handles can be made without a `?`.
#[derive(Clone)]
enum Target {
    Line(Arc<Local>),
    Bad(String),
}

impl Handle {
    pub(crate) fn new(turns: &Turns, name: &str, terms: Terms) -> Self {
        let target = match turns.local(name) {
            Ok(local) => Target::Line(local),
            Err(_) => Target::Bad(name.to_owned()),
        };
        Self { target, terms }
    }

    /// What is asked of which line.
    fn ask(
        &self,
        mode: Mode,
        waits: bool,
        place: &'static Location<'static>,
    ) -> Result<(&Arc<Local>, Ask)> {
        let local = match &self.target {
            Target::Line(local) => local,
            Target::Bad(name) => {
                return Err(Name::new(name)
                    .err()
                    .unwrap_or_else(|| Error::closed(Step::Name)));
            }
        };
        self.terms.check()?;
        mode.check()?;
        Ok((local, Ask::new(mode, waits, &self.terms, place)))
    }

    async fn take(
        &self,
        mode: Mode,
        waits: bool,
        place: &'static Location<'static>,
    ) -> Result<Option<Guard>> {
        let (local, ask) = self.ask(mode, waits, place)?;
        Ok(local.take(&ask).await?.map(Guard::new))
    }

    async fn wait(&self, mode: Mode, place: &'static Location<'static>) -> Result<Guard> {
        let (local, ask) = self.ask(mode, true, place)?;
        let turn = local.take(&ask).await?;
        turn.map(Guard::new).ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                Step::Claim,
                "the engine would not let us wait",
            )
        })
    }

    async fn within(
        &self,
        mode: Mode,
        patience: Duration,
        place: &'static Location<'static>,
    ) -> Result<Option<Guard>> {
        match tokio::time::timeout(patience, self.take(mode, true, place)).await {
            Ok(taken) => taken,
            Err(_) => Ok(None),
        }
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.target {
            Target::Line(local) => write!(f, "{:?}", local.name()),
            Target::Bad(name) => write!(f, "{name:?} (not a name)"),
        }
    }
}

/// The methods that set terms, the same on every kind.
macro_rules! terms {
    () => {
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
        /// several machines start "at the same time" by clocks that differ. Kept while this client lives.
        pub fn min_hold(mut self, min_hold: std::time::Duration) -> Self {
            self.0.terms.min_hold = min_hold;
            self
        }

        /// Keeps the grant for a while after the last release, so that this process can have it again without a
        /// round trip. It is given up at once when somebody else asks. A try of another process may find it busy once.
        pub fn linger(mut self, linger: std::time::Duration) -> Self {
            self.0.terms.linger = linger;
            self
        }

        /// Every task goes to the engine by itself: first come, first served across all processes, at the price of a
        /// round trip each. Otherwise tasks of one process may take a few turns in a row ([`Bound`](crate::Bound)).
        pub fn strict(mut self) -> Self {
            self.0.terms.strict = true;
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
