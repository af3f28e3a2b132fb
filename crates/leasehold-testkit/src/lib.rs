//! Parts of the tests of Leasehold. Nothing that ships depends on it.
//!
//! - [`disk`]: a small disk that can be filled.
//! - [`faulty`]: an engine around an engine that loses, delays and repeats.
//! - [`process`]: real processes as values, killed when they are dropped.
//! - [`peers`]: the libraries that ours contends with.
//! - [`poll`]: waiting for a state, with the last state in the failure.
//! - [`proxy`]: a TCP proxy that delays, holds back, cuts and resets.
//! - [`servers`]: real servers as values.
//! - [`random`]: numbers from a seed that replay in every version.
//! - [`log`]: the log of a closure.
//! - [`skip`]: skipping on purpose, printed and counted.

pub mod disk;
pub mod faulty;
pub mod log;
pub mod peers;
pub mod poll;
pub mod process;
pub mod proxy;
pub mod random;
pub mod servers;
pub mod skip;
mod told;
