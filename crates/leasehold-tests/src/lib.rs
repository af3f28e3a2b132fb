//! Tests that stand once and run on every engine: what an engine needs for them is a [`Bed`].
//!
//! - [`edge`]: calls that arrive around the end of a dead holder's lease.
//! - [`lost_answers`]: every operation, cut at each of its messages.
//! - [`overload`]: a server that says nothing while many tasks try.

mod bed;
pub mod edge;
pub mod lost_answers;
pub mod overload;

pub use self::bed::Bed;

/// The lease of locks beside a name that is spoiled: long enough that a busy machine renews it in time.
pub const ISOLATED: std::time::Duration = std::time::Duration::from_millis(2_500);
