//! A client of Redis: RESP3 on one connection to each server, which is made again whenever it ends.
//!
//! A [`Server`] is all that the layouts see of it: calls and runs of their script go in, answers come back, and
//! messages of the channels it listens to are told to one function. Below it, from the bytes up: `stream` (TCP, TLS,
//! Unix sockets), `resp` and `parse` (the protocol), `mux` (requests and answers of many callers), `connection` (login and
//! handshake), `server` and `keeper` (one connection after the other). Beside it: which server that is (`sentinel`, `cluster`).

mod cluster;
mod connection;
mod keeper;
mod mux;
mod parse;
mod resp;
mod sentinel;
mod server;
mod stream;

pub(super) use self::cluster::Cluster;
pub(super) use self::connection::{Channel, Credentials, Login};
#[cfg(fuzzing)]
pub(crate) use self::parse::tests as fuzzed;
pub(super) use self::resp::{Call, Reply};
pub(super) use self::server::{Common, Server, Unasked};
pub(super) use self::stream::Address;
