//! How to connect, and how patiently.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::engine::{Clock, Engine, Identity, Level, url_engine};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::kinds::LockOptions;
use crate::session::Manager;
use crate::store::{self, Store};
use crate::turns::{Queues, TurnBound, Turns};

/// How to connect.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::Level;
/// use std::time::Duration;
///
/// let client = leasehold::ConnectOptions::new()
///     .require(Level::L2)
///     .lease(Duration::from_secs(5))
///     .connect("memory:")
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until they connect"]
pub struct ConnectOptions {
    require: Option<Level>,
    locks: LockOptions,
    identity: Option<Identity>,
    clock: Clock,
    patience: Option<Duration>,
    store: Option<Arc<dyn Store>>,
    #[cfg(feature = "cached")]
    in_process: Option<u64>,
}

/// How long a passing refusal is borne by a connect.
const PATIENCE: Duration = Duration::from_secs(2);

impl ConnectOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses to connect unless the engine reaches this level.
    pub const fn require(mut self, level: Level) -> Self {
        self.require = Some(level);
        self
    }

    /// The terms of locks that set none of their own, and of what is made of locks: elections, work done once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{ConnectOptions, LockOptions};
    /// let fair = LockOptions::new().strict();
    /// let client = ConnectOptions::new().locks(fair).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub fn locks(mut self, locks: LockOptions) -> Self {
        self.locks = locks;
        self
    }

    /// The lease of locks that set none of their own, as [`LockOptions::lease`]; 10 s unless set.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.locks = self.locks.lease(lease);
        self
    }

    /// How long a grant may stay in this process while another waits, as [`LockOptions::bound`].
    pub fn bound(mut self, bound: TurnBound) -> Self {
        self.locks = self.locks.bound(bound);
        self
    }

    /// The process as `status` shows it.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The clock validity is counted on; a test drives a simulated one.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// For how long a connect is tried again while the engine cannot be reached, is starting or is failing over; 2 s
    /// unless set, and zero for one attempt. A wrong URL or a wrong password is told at once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use std::time::Duration;
    /// let options = leasehold::ConnectOptions::new().patience(Duration::from_secs(30));
    /// let client = options.connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Where kinds that remember something keep it ([`Stock`](crate::Stock), [`Once`](crate::Once)); otherwise the store of the
    /// URL that is connected to, where it has one. All processes that share the locks must share the store.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let store = leasehold::store::open("memory:shop")?;
    /// let client = leasehold::ConnectOptions::new().store(store).connect("memory:shop").await?;
    /// # Ok(()) }
    /// ```
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// How many [cached](crate::Cached) values a process holds at most; 10,000 unless set. The least used make room.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// let client = leasehold::ConnectOptions::new().cached_in_process(1_000_000).connect("memory:").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "cached")]
    pub const fn cached_in_process(mut self, most: u64) -> Self {
        self.in_process = Some(most);
        self
    }

    /// Connects to the engine of a URL, as [`connect`](crate::connect()).
    ///
    /// # Errors
    /// As [`connect`](crate::connect()), and [`ErrorKind::Unsupported`] if a required level is not reached.
    pub async fn connect(mut self, url: &str) -> Result<Client> {
        let (url, engine) = url_engine(url)?;
        // A kind that needs a store says why there is none.
        self.store = self.store.or_else(|| store::of(&url).ok());
        self.open(engine).await
    }

    /// Opens a session of an engine that is there already.
    ///
    /// # Errors
    /// Those of the engine, and [`ErrorKind::Unsupported`] if a required level is not reached.
    pub async fn open(self, engine: Arc<dyn Engine>) -> Result<Client> {
        if let Some(level) = self.require {
            engine.guarantees().require(level)?;
        }
        if tokio::runtime::Handle::try_current().is_err() {
            let what = "not inside a tokio runtime; use leasehold::blocking, or call this from one";
            return Err(Error::new(ErrorKind::Invalid, Step::Connect, what));
        }
        let who = self.identity.unwrap_or_else(Identity::of_this_process);
        let patience = self.patience.unwrap_or(PATIENCE);
        let queues = Arc::<Queues>::default();
        let open = || Manager::open(&*engine, &who, &self.clock, queues.clone());
        let manager = patiently(patience, &self.clock, open).await;
        let manager = manager.map_err(|error| with_remedy(error, &engine.location()))?;
        let turns = Turns::new(manager, queues);
        Ok(Client::new(
            turns,
            engine,
            who,
            self.locks.terms().clone(),
            self.store,
            #[cfg(feature = "cached")]
            crate::kinds::Layer::of(self.clock, self.in_process),
        ))
    }
}

/// Says what to look at when a session did not open.
fn with_remedy(error: Error, location: &str) -> Error {
    if error.step() != Step::Open || !error.is_transient() {
        return error;
    }
    error.noting(&match location.contains("//") {
        true => format!("is a server running at {location}, and does this machine reach it?"),
        false => format!("can this user make and write {location}?"),
    })
}

/// Tries until it succeeds, fails for good, or the time is over. The last error says how long it was tried.
async fn patiently<T, F>(
    patience: Duration,
    clock: &Clock,
    mut open: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let begin = clock.now();
    let mut slept = Duration::ZERO;
    let mut pause = Duration::from_millis(20);
    let mut attempts = 0_u32;
    loop {
        attempts += 1;
        let error = match open().await {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        // A clock that a test has stopped shows no time passing.
        let passed = slept.max(Duration::from_micros(clock.now() - begin));
        if !error.is_transient() || error.may_have_happened() || passed >= patience {
            return Err(match attempts {
                1 => error,
                _ => error.tried(attempts, passed),
            });
        }
        tracing::debug!(%error, attempts, "connecting again");
        pause = pause.min(patience - passed);
        tokio::time::sleep(pause).await;
        slept += pause;
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_did_not_open_says_what_to_look_at() {
        let text = |kind, step, at| with_remedy(Error::new(kind, step, "no"), at).to_string();
        assert_eq!(
            text(ErrorKind::Unavailable, Step::Open, "redis://h:1"),
            "open: no: is a server running at redis://h:1, and does this machine reach it?"
        );
        assert_eq!(
            text(ErrorKind::TimedOut, Step::Open, "sqlite:/x"),
            "open: no: can this user make and write sqlite:/x?"
        );
        assert_eq!(text(ErrorKind::Denied, Step::Open, "x"), "open: no");
        assert_eq!(text(ErrorKind::Unavailable, Step::Claim, "x"), "claim: no");
    }
}
