//! For authors of engines: the two traits an engine implements, and the plain types they speak in.
//!
//! An [`Engine`] is one deployment: a directory, a server, a cluster. It opens [`Session`]s; a session claims names,
//! keeps the claims alive and gives them back. A change to a claim that its session did not ask for is told to
//! the session's [`Inbox`].
//!
//! # Contract
//! - Every operation is idempotent by claim id: asked again after a lost reply it gives the same answer.
//! - A claim ends `lease` after its session's last word (claim or heartbeat), waiting or holding; being granted does
//!   not move that.
//! - Claims on a name are granted in order of arrival while their weights fit (`line.rs` has the rule).
//! - A future may be dropped at any await. Its operation may or may not have happened, and a later `release` of
//!   the same claim on the same session comes after it: nothing stays behind.
//! - Events may be lost or repeated. Nothing is told by an event alone that a heartbeat would not also tell, but for
//!   [`Event::Asked`]: a request, and no fact.
//! - Answers and events overtake each other. An event that comes before the answer of its own claim counts: a claim that
//!   was ended is not held, whatever its answer says. An answer that was made before an event and is read after it does
//!   not undo the event; the next heartbeat's answer may.
//! - An engine refuses what it cannot do in `claim`, before the claim waits.

mod changes;
mod guarantees;
#[cfg(any(
    feature = "redis",
    feature = "zookeeper",
    feature = "consul",
    feature = "etcd",
    feature = "postgres",
    feature = "mysql"
))]
mod host;
mod schemes;
mod url;
mod view;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::guarantees::{Fault, Guarantees, Level, Verdict};
#[cfg(any(
    feature = "redis",
    feature = "zookeeper",
    feature = "consul",
    feature = "etcd",
    feature = "postgres",
    feature = "mysql"
))]
pub(crate) use self::host::Host;
pub(crate) use self::schemes::engine as url_engine;
#[cfg(any(all(feature = "file", unix), feature = "sqlite"))]
pub(crate) use self::url::path_in_url;
pub use self::url::{Params, Url};
pub use self::view::{ClaimView, LineView, Query};
#[cfg(fuzzing)]
pub(crate) use self::{host::tests as host_fuzzed, url::tests as url_fuzzed};
pub use crate::claim::{Claim, ClaimId, Mode, RW_CAPACITY, SessionId};
pub use crate::clock::{Clock, Micros};
#[cfg(feature = "consul")]
pub use crate::engines::consul::{Consul, ConsulLocks};
#[cfg(feature = "etcd")]
pub use crate::engines::etcd::Etcd;
#[cfg(all(feature = "file", unix))]
pub use crate::engines::file::File;
pub use crate::engines::memory::Memory;
#[cfg(feature = "redlock")]
pub use crate::engines::redis::redlock::Redlock;
#[cfg(feature = "redis")]
pub use crate::engines::redis::{Redis, RedisOptions, Redisson};
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub use crate::engines::sql::Sql;
#[cfg(feature = "zookeeper")]
pub use crate::engines::zookeeper::ZooKeeper;
pub use crate::error::Step;
pub use crate::fence::FENCE_BLOCK;
pub use crate::identity::Identity;
pub use crate::line::{Held, Release, Standing};
pub use crate::session::Inbox;

use crate::error::{Error, ErrorKind, Result};
use crate::fence::Fence;
use crate::name::Name;

/// One deployment of one engine.
///
/// No method has a default body: a wrapper must forward every one of them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::engine::{Claim, Clock, Engine, Event, Identity, Inbox, Memory, Mode, Standing};
/// use leasehold::Name;
///
/// let (tell, told) = std::sync::mpsc::channel();
/// let engine = Memory::new(Clock::boot());
/// let me = Identity::of_this_process();
/// let session = engine.open(&me, Inbox::new(move |event| tell.send(event).unwrap())).await?;
///
/// let lease = std::time::Duration::from_secs(10);
/// let [first, second] = [(); 2].map(|()| Claim::new(Name::new("x").unwrap(), Mode::Mutex, lease));
/// assert!(matches!(session.claim(&first).await?, Standing::Held(_)));
/// assert!(matches!(session.claim(&second).await?, Standing::Waiting { ahead: 1, .. }));
/// assert_eq!(told.recv(), Ok(Event::Wanted(first.id)));
///
/// session.release(&first, 1).await?;
/// assert!(matches!(told.recv(), Ok(Event::Granted(id, _)) if id == second.id));
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Engine: std::fmt::Debug + Send + Sync + 'static {
    /// The engine's word in errors and logs: `memory`, `file`, `redis`.
    fn kind(&self) -> &'static str;

    /// Where it is, as a URL without secrets. Two engines with the same answer exclude each other.
    fn location(&self) -> String;

    /// The verdict per fault, and what the engine can do.
    fn guarantees(&self) -> Guarantees;

    /// Begins a session. Changes to its claims are told to `inbox`.
    async fn open(&self, who: &Identity, inbox: Inbox) -> Result<Arc<dyn Session>>;

    /// Looks at lines; changes nothing.
    async fn inspect(&self, query: &Query) -> Result<Vec<LineView>>;

    /// Takes a lock away from its holders, or from the holder of one fence; says how many lost it. Later fences are
    /// larger, the holders are told, and a trace of the eviction is left.
    async fn evict(
        &self,
        name: &Name,
        fence: Option<Fence>,
        by: &Identity,
        why: &str,
    ) -> Result<u32>;

    /// Asks the holders of a name, or the holder of one fence, to give it up; says how many were asked. An engine
    /// whose holders cannot be told refuses with [`ErrorKind::Unsupported`].
    async fn ask_to_release(&self, name: &Name, fence: Option<Fence>) -> Result<u32>;
}

/// The refusal of an engine whose holders cannot be asked to give a lock up.
///
/// ```
/// use leasehold::{ErrorKind, Name, engine};
/// let error = engine::cannot_ask("redis", &Name::new("x")?);
/// assert_eq!(error.kind(), ErrorKind::Unsupported);
/// # Ok::<(), leasehold::Error>(())
/// ```
pub fn cannot_ask(kind: &'static str, name: &Name) -> Error {
    let what = "holders cannot be asked to give up here: evict them, or wait";
    let error = Error::new(ErrorKind::Unsupported, Step::Ask, what);
    error.on(kind).of(name)
}

/// Where a heartbeat tells the standing of a claim. It returns soon and may call the session: an engine calls it without
/// a lock of its own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::engine::{Claim, Clock, Engine, Heard, Identity, Inbox, Memory, Mode, Standing};
/// let engine = Memory::new(Clock::boot());
/// let session = engine.open(&Identity::of_this_process(), Inbox::new(|_| {})).await?;
/// let lease = std::time::Duration::from_secs(10);
/// let claim = std::sync::Arc::new(Claim::new(leasehold::Name::new("x")?, Mode::Mutex, lease));
/// let heard: &Heard<'_> = &|_, standing| assert_eq!(standing, Standing::Gone);
/// session.heartbeat(&[claim], heard).await?;
/// # Ok(()) }
/// ```
pub type Heard<'a> = dyn Fn(&Claim, Standing) + Send + Sync + 'a;

/// One client's life in an engine. As with [`Engine`], no method has a default body.
#[async_trait]
pub trait Session: std::fmt::Debug + Send + Sync + 'static {
    /// Joins the line, or says again that this claim is alive. A held claim asked for again with a smaller weight
    /// gives the difference back (a writer becomes a reader).
    async fn claim(&self, claim: &Claim) -> Result<Standing>;

    /// Says that these claims are alive. `heard` is called for each claim as soon as its answer is known; a claim
    /// without an answer is not named. Lines, nodes and shards that are slow keep no other claim from its answer. An
    /// error speaks for every claim that was not named.
    ///
    /// The caller asks for claims of similar lease in one call (a fifth apart at most), those first that were not renewed
    /// for longest. It has several calls under way at once, and drops a call after a third of the longest lease in it.
    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()>;

    /// How long the engine keeps a claim after its session's last word: the lease it asked for, or what the server
    /// made of it.
    fn lease(&self, claim: &Claim) -> Duration;

    /// Leaves the line. Of the block of fences the first `used` are spent.
    async fn release(&self, claim: &Claim, used: u32) -> Result<Release>;

    /// Ends the session and everything it has.
    async fn close(&self) -> Result<()>;
}

/// Changes to a session's claims that the session did not ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A waiting claim now holds.
    Granted(ClaimId, Held),
    /// Another claim joined the line behind this holder.
    Wanted(ClaimId),
    /// Another process asks for this claim to be given up, now or once it holds.
    Asked(ClaimId),
    /// A claim is gone.
    Ended(ClaimId, Ended),
    /// The engine cannot be heard; held claims may still be ours.
    Unsure,
    /// The session is over; everything it had is lost.
    Down(String),
}

/// Why a claim is gone although its session did not release it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// No word of the session reached the engine for a lease.
    Expired,
    /// An eviction took it away.
    Evicted {
        /// The process that evicted it.
        by: String,
        /// The reason given.
        why: String,
    },
    /// The engine no longer knows the claim.
    Forgotten,
    /// The session ended.
    Down(String),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Expired => f.write_str("the lease ended before a renewal got through"),
            Self::Evicted { by, why } => write!(f, "evicted by {by}: {why}"),
            Self::Forgotten => f.write_str("the engine no longer knows this claim"),
            Self::Down(why) => write!(f, "the session ended: {why}"),
        }
    }
}
