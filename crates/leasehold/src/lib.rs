//! Distributed locks: one API, one set of promises over every engine.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! let client = leasehold::connect("memory:").await?;   // or "file:", or LEASEHOLD_URL
//! let guard = client.mutex("stock:42").lock().await?;  // waits its turn
//! // … the work; send guard.fence() with every write …
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Which kind?
//! | you want | take |
//! |---|---|
//! | one at a time | [`Mutex`] |
//! | many readers, one writer | [`RwLock`] |
//! | a few at a time | [`Semaphore`] |
//! | several names in one step | [`Multi`] |
//! | one leader | [`Election`] |
//! | work done once per key | [`Once`] |
//! | a value loaded once for the fleet | `Cached` (feature `cached`) |
//! | all wait until so many are done | [`Latch`] |
//! | so many arrive, and all go | [`Barrier`] |
//! | many keys, one lock too hot | [`Striped`] |
//! | stock that many buy at once | [`Stock`] |
//! | no async | [`blocking`] |
//! | a function under a lock, by an attribute | `locked`, with the feature `macros` |
//!
//! # Which engine?
//! | URL | cargo feature | locks for |
//! |---|---|---|
//! | `memory:`, `memory:LABEL` | – | the tasks and threads of this process; for tests |
//! | `file:`, `file:DIR` | `file` (default) | the processes of one user on one machine |
//! | `redis://HOST`, `rediss://`, `redis+unix://`, `redis+sentinel://`, `redis+cluster://` | `redis` | clients of Redis or Valkey |
//! | `redlock://H1,H2,H3` | `redlock` | clients of a majority of independent Redis servers; mutexes only |
//! | `postgres://USER@HOST/DB`, `mysql://USER@HOST/DB` | `postgres`, `mysql` | clients of one database |
//! | `sqlite:FILE` | `sqlite` | the processes of one machine |
//! | `zookeeper://H1,H2,H3/PATH` | `zookeeper` | clients of one ensemble, Curator's among them |
//! | `etcd://H1,H2,H3`, `etcds://` | `etcd` | clients of one cluster, `etcdctl lock` among them |
//! | `consul://HOST:8500/PREFIX`, `consuls://`, `consul+unix:` | `consul` | clients of one datacenter |
//!
//! The options of each URL, what the engine promises and its limits:
//! [`file:`](engine/struct.File.html), [`redis:`](engine/struct.Redis.html) and its
//! [`layout=redisson`](engine/struct.Redisson.html), [`redlock:`](engine/struct.Redlock.html),
//! [databases](engine/struct.Sql.html), [`zookeeper:`](engine/struct.ZooKeeper.html), [`etcd:`](engine/struct.Etcd.html),
//! [`consul:`](engine/struct.Consul.html) and its [`layout=consul`](engine/struct.ConsulLocks.html). What a process
//! [asks of an engine](Guarantees::require), a program can ask at its start.
//!
//! # Promises
//! At most one live guard per name is valid at a time, within the faults for which the engine's
//! [guarantees](Client::guarantees) say so. A guard becomes [lost](GuardState::Lost) on its own clock before the engine
//! lets another holder in. If your process stands still it may still run one step before it looks: pass
//! [`Guard::fence`] to the resource and let it refuse old ones. [`guarantees`] prints the row of an engine; the
//! numbered list that the tests cite is `docs/promises.md` of the source.
//!
//! # Layout
//! ```text
//! kinds     Mutex RwLock Semaphore Multi …            what people call
//! store     values behind fences                      for kinds that remember something
//! turns     the line inside this process              hands a grant from task to task
//! session   heartbeat, events, reaper, validity       the only background tasks
//! engine    the two traits of an engine
//! engines   memory file redis sql zookeeper etcd consul  a folder each; Redlock is a part of Redis
//! line      the rule that all of them follow, pure
//! ```

#![warn(clippy::unwrap_used)]

#[cfg(feature = "macros")]
#[doc(hidden)]
#[path = "locked.rs"]
pub mod __locked;
mod claim;
mod client;
mod clock;
mod error;
mod fence;
#[cfg(all(test, not(fuzzing)))]
mod fuzz;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz;
mod guard;
mod identity;
mod kinds;
mod name;
mod options;
mod part;
mod session;
mod sync;
mod turns;

pub mod blocking;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod engine;
mod engines;
#[doc(hidden)]
pub mod line;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod sql;
pub mod store;

pub use self::client::{Client, ShutdownReport, connect, guarantees};
#[doc(inline)]
pub use self::engine::{
    ClaimView, Fault, Guarantees, Identity, Level, LineView, Mode, Query, Verdict,
};
pub use self::error::{Error, ErrorKind, Result};
pub use self::fence::{Fence, FenceGate, StaleFence};
pub use self::guard::{Guard, LossSignal, Released};
pub use self::kinds::{
    Barrier, Done, Election, Latch, Leader, Leaders, Leadership, LockOptions, Multi, MultiGuard,
    Mutex, Once, OnceError, Passed, Ran, RunError, RwLock, Semaphore, Stock, Striped, WriteGuard,
};
#[cfg(feature = "cached")]
pub use self::kinds::{Cached, LoadError};
pub use self::name::{NAME_MAX, Name};
pub use self::options::ConnectOptions;
pub use self::session::GuardState;
pub use self::turns::{Owner, TurnBound};
#[cfg(feature = "macros")]
pub use leasehold_macros::locked;
