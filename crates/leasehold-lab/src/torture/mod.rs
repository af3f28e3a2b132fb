//! Faults on a real engine: workers in several processes, a schedule of faults from a seed, a resource that checks fences, and a
//! verdict.

mod asked;
mod deployment;
mod drain;
mod faults;
pub(crate) mod gate;
pub(crate) mod hand;
mod locks;
mod network;
mod run;
mod servers;
mod work;
mod workers;

use std::path::PathBuf;
use std::time::Duration;

pub use self::deployment::{engines, faults_of, lease_of};
pub use self::faults::FaultKind;
pub use self::run::torture;
pub use self::work::{Work, work};

/// The plan of a run. The same plan makes the same schedule of faults and requests.
#[derive(Debug, Clone)]
pub struct Plan {
    /// An engine's word, whose servers are started; or the URL of running ones.
    pub url: String,
    /// For how long.
    pub time: Duration,
    /// Where all random numbers come from.
    pub seed: u64,
    /// How many processes.
    pub workers: u64,
    /// The lease of every lock.
    pub lease: Duration,
    /// The longest a holder rests between two steps.
    pub rest: Duration,
    /// Which faults.
    pub faults: Vec<FaultKind>,
    /// This program, to start the workers with.
    pub program: PathBuf,
    /// Where the histories and the report go.
    pub into: PathBuf,
    /// Whether to say every second how it goes.
    pub progress: bool,
}
