//! Guards: the caller holds the lock while it has one.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::name::Name;
use crate::session::{Grant, GuardState};
use crate::turns::Turn;

/// A held lock. It is renewed in the background until it is released or dropped.
///
/// A guard is yours while [`state`](Self::state) is not [`GuardState::Lost`]. It becomes lost on its own clock *before* the
/// engine lets another holder in, but a process that stood still may run one more step before it looks: if that step
/// can do harm, send [`fence`](Self::fence) with it and let the resource refuse old fences.
///
/// Dropping a guard releases it in the background: it never blocks and never panics, also outside a runtime.
/// [`release`](Self::release) is the way to know that it was still held.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// let client = leasehold::connect("memory:").await?;
/// let guard = client.mutex("stock:42").lock().await?;
/// println!("writing with fence {}", guard.fence());
/// guard.check()?; // before a step that must not be late
/// assert_eq!(guard.release().await?, leasehold::Released::Released);
/// # Ok(()) }
/// ```
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard {
    turn: Turn,
}

/// How the lock stood when it was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The lock was held until now.
    Released,
    /// The lock had been lost before: another holder may have had it since.
    WasLost,
}

impl Guard {
    pub(crate) const fn new(turn: Turn) -> Self {
        Self { turn }
    }

    /// The token of this turn: larger than that of every earlier holder of the name. Present it before the first
    /// read of what the lock protects.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let gate = leasehold::FenceGate::new();
    /// let guard = client.mutex("x").lock().await?;
    /// gate.admit(guard.fence()).expect("no later holder was here");
    /// # Ok(()) }
    /// ```
    pub fn fence(&self) -> Fence {
        self.turn.fence()
    }

    /// The name that is locked.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// assert_eq!(client.mutex("x").lock().await?.name().as_str(), "x");
    /// # Ok(()) }
    /// ```
    pub fn name(&self) -> &Name {
        &self.turn.grant().claim.name
    }

    /// Whether the lock is still ours, by our own clock. No round trip.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// assert_ne!(guard.state(), leasehold::GuardState::Lost);
    /// # Ok(()) }
    /// ```
    pub fn state(&self) -> GuardState {
        self.turn.grant().state()
    }

    /// Fails if the lock is lost. No round trip.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] with the reason.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// guard.check()?;
    /// # Ok(()) }
    /// ```
    pub fn check(&self) -> Result<()> {
        match self.state() {
            GuardState::Lost => Err(lost_error(self.turn.grant())),
            GuardState::Valid | GuardState::Unsure => Ok(()),
        }
    }

    /// When the lock is lost unless a renewal gets through; moves with every renewal.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// assert!(guard.deadline() > std::time::Instant::now());
    /// # Ok(()) }
    /// ```
    pub fn deadline(&self) -> Instant {
        self.turn.grant().deadline()
    }

    /// How long the engine keeps the lock after the last renewal it heard: the lease that was asked for, or what the
    /// server made of it (sessions of ZooKeeper and Consul and leases of etcd are longer). After a crash the lock passes on
    /// so much later; the guard itself is lost no later than the lease that was asked for.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # use std::time::Duration;
    /// let guard = client.mutex("x").lease(Duration::from_secs(5)).lock().await?;
    /// assert_eq!(guard.lease(), Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    pub fn lease(&self) -> Duration {
        self.turn.grant().kept
    }

    /// How long until [`deadline`](Self::deadline); zero once it is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// assert!(!guard.remaining().is_zero());
    /// # Ok(()) }
    /// ```
    pub fn remaining(&self) -> Duration {
        self.turn.grant().remaining()
    }

    /// Waits until the lock is lost; the error says why.
    ///
    /// # Ordering
    /// Told before the engine lets another holder in, unless the engine itself takes the lock away (eviction).
    /// # Cancel safety
    /// May be dropped and called again at any time; a loss is never missed.
    /// # Errors
    /// None; the returned error *is* the answer.
    /// # Not promised
    /// A process that stands still is told when it runs again; look at [`check`](Self::check) before acting.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// tokio::select! {
    ///     why = guard.lost() => eprintln!("stop: {why}"),
    ///     () = async { /* the work */ } => {}
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Error {
        self.loss_signal().lost().await
    }

    /// Waits until the holder is asked to give the lock up: by another client
    /// ([`Client::ask_to_release`](crate::Client::ask_to_release), Curator's `Revoker`), or because this client is being
    /// [shut down](crate::Client::shutdown). The lock stays held until it is released.
    ///
    /// # Ordering
    /// Told any time after it was asked. Once asked, the lock serves no other task of this process and does not linger.
    /// # Cancel safety
    /// May be dropped and called again at any time; the request stays made.
    /// # Errors
    /// None.
    /// # Not promised
    /// That it is told soon (ZooKeeper, etcd, Consul: within a third of the lease), or at all on engines where holders cannot be
    /// asked.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// tokio::select! {
    ///     () = guard.release_requested() => { /* finish early */ }
    ///     () = async { /* the work */ } => {}
    /// }
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release_requested(&self) {
        self.turn.grant().asked().cancelled().await;
    }

    /// Whether the holder was asked to give the lock up, as [`release_requested`](Self::release_requested) tells. No round trip.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// assert!(!guard.is_release_requested());
    /// # Ok(()) }
    /// ```
    pub fn is_release_requested(&self) -> bool {
        self.turn.grant().is_asked()
    }

    /// Tells of the loss apart from the guard: to hand to the code that does the work, on other tasks and threads.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// let signal = guard.loss_signal();
    /// let worker = std::thread::spawn(move || {
    ///     while !signal.is_lost() {
    ///         // A step of the work.
    /// #       break;
    ///     }
    /// });
    /// # worker.join().unwrap();
    /// # Ok(()) }
    /// ```
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal(self.turn.grant().clone())
    }

    /// Gives the lock back and says whether it was held until now.
    ///
    /// # Ordering
    /// The next in line holds the lock when this returns, if the engine could be reached.
    /// # Cancel safety
    /// Dropping the future leaves the release to the background; it happens once.
    /// # Errors
    /// If the engine could not be told. The background goes on trying until the lease ends.
    /// # Not promised
    /// That no other holder acted meanwhile: [`Released::WasLost`] means that another one may have had the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// let guard = client.mutex("x").lock().await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<Released> {
        Ok(match self.turn.release().await? {
            crate::engine::Release::Released => Released::Released,
            crate::engine::Release::Gone => Released::WasLost,
        })
    }

    pub(crate) fn turn(&self) -> &Turn {
        &self.turn
    }
}

/// Tells that a lock was lost, by the same clock as its [`Guard`]. Cheap to clone.
///
/// Once the guard is released it tells nothing that counts: the grant may go on for another task of this process, or end.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let client = leasehold::connect("memory:").await?;
/// # let guard = client.mutex("x").lock().await?;
/// let signal = guard.loss_signal();
/// let work = tokio::spawn(async move {
///     tokio::select! {
///         why = signal.lost() => Err(why),
///         () = async { /* the work */ } => Ok(()),
///     }
/// });
/// # work.await.unwrap()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a signal does nothing until it is looked at"]
pub struct LossSignal(Arc<Grant>);

impl LossSignal {
    /// Whether the lock is lost. No round trip.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// assert!(!guard.loss_signal().is_lost());
    /// # Ok(()) }
    /// ```
    pub fn is_lost(&self) -> bool {
        self.0.state() == GuardState::Lost
    }

    /// Waits until the lock is lost; the error says why. As [`Guard::lost`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let client = leasehold::connect("memory:").await?;
    /// # let guard = client.mutex("x").lock().await?;
    /// let signal = guard.loss_signal();
    /// let _ = client.evict("x", "the job hangs").await?;
    /// assert!(signal.lost().await.is_lost());
    /// # Ok(()) }
    /// ```
    pub async fn lost(&self) -> Error {
        self.0.lost().await;
        lost_error(&self.0)
    }
}

impl fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LossSignal({}, {:?})", self.0.claim.name, self.0.state())
    }
}

fn lost_error(grant: &Grant) -> Error {
    let why = grant
        .why_lost()
        .map_or_else(String::new, ToString::to_string);
    Error::new(ErrorKind::Lost, Step::Hold, why).of(&grant.claim.name)
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", self.name())
            .field("fence", &self.fence())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
