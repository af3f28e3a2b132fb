//! What the tests of Leasehold are made of. Nothing that ships depends on it.
//!
//! - [`faulty`]: an engine around an engine that loses, delays and repeats.
//! - [`process`]: real processes as values, killed when they are dropped.
//! - [`poll`]: waiting for a state, with the last state in the failure.
//! - [`random`]: numbers from a seed that replay in every version.
//! - [`log`]: what was logged while a closure ran.
//! - [`skip`]: skipping on purpose, printed and counted.

pub mod faulty;
pub mod log;
pub mod poll;
pub mod process;
pub mod random;
pub mod skip;
