//! How Leasehold shows its promises. Nothing that ships depends on it.
//!
//! - [`history`]: what every process did and saw, one JSON line per event.
//! - [`check`]: judges a history in O(n log n), promise by promise.
//! - [`torture`]: workers in several processes, faults from a seed, a verdict.
//! - [`simulation`]: the real session, turns and guards over a simulated engine and clock.
//! - [`explore`]: small random programs over the whole API in simulated time, judged at every step.
//! - [`mutants`]: planted bugs that a named scenario must catch.
//! - [`exhibits`]: classic broken locks on real servers, and the same schedule on Leasehold.

pub mod check;
pub mod exhibits;
pub mod explore;
pub mod history;
pub mod mutants;
pub mod report;
pub mod simulation;
pub mod timeline;
pub mod torture;

pub use leasehold_testkit::random;

/// An error of the lab itself, as text.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
