//! Tests that stand once and run on every engine: an engine needs a [`Bed`] for them.
//!
//! - [`edge`]: calls that arrive around the end of a dead holder's lease.
//! - [`lost_answers`]: every operation, cut at each of its messages.
//! - [`overload`]: a server that says nothing while many tasks try.
//! - [`runtimes`]: the runtime of a call, or of the client, ends.
//! - [`vandal`]: another program that spoils the keys of one name.

mod bed;
pub mod edge;
pub mod lost_answers;
pub mod overload;
pub mod runtimes;
pub mod vandal;

pub use self::bed::Bed;

/// The lease of locks beside a name that is spoiled: long enough that a busy machine renews it in time.
pub const ISOLATED: std::time::Duration = std::time::Duration::from_millis(2_500);
