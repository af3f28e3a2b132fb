//! One client's life in an engine: heartbeats, events, clean-up, validity.
//!
//! The [`Keeper`] has one table of all claims of the client, waiting and holding. One task keeps them alive
//! ([`heartbeat`]), another gives back what was dropped ([`reaper`]); both live on the runtime that connected.

mod answer;
mod asking;
mod events;
mod giving;
mod grant;
mod heartbeat;
mod keeper;
mod reaper;
mod routing;
mod table;

pub use self::events::Inbox;
pub use self::grant::State;
pub(crate) use self::grant::{Grant, Home};
pub(crate) use self::keeper::Keeper;
pub(crate) use self::table::{Confirmed, Parked};
