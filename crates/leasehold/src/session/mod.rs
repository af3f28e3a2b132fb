//! One client's life in an engine: heartbeats, events, clean-up, validity.
//!
//! The [`Manager`] has one table of all claims of the client, waiting and holding. One task keeps them alive
//! ([`heartbeat`]), another gives back what was dropped ([`reaper`]); both live on the runtime that connected.

mod acquire;
mod events;
mod grant;
mod heartbeat;
mod inbox;
mod manager;
mod reaper;
mod release;
mod table;
mod timeout;

pub use self::grant::GuardState;
pub(crate) use self::grant::{Grant, GrantObserver};
pub use self::inbox::Inbox;
pub(crate) use self::manager::Manager;
pub(crate) use self::table::{Confirmed, Parked};
