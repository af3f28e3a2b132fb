//! A shop that sells its stock in every way there is: without a lock, under locks made by hand, under Leasehold, in the database.
//!
//! One program, started twice behind nginx. Of Leasehold it uses the public API alone.
//!
//! - [`ways`]: a file for each group of ways to sell one piece.
//! - [`stock`], [`rows`]: where the pieces are counted, in Redis and in MariaDB.
//! - [`categories`], [`packets`]: the tree that the fleet loads once, and the packet that a user draws from once.
//! - [`switch`]: where a request may be told to stop or to die, so that the failures of locks made by hand can be seen.
//! - [`demo`]: starts all of it, buys, and writes down what it saw.

pub mod answer;
pub mod app;
pub mod categories;
pub mod demo;
pub mod packets;
pub mod routes;
pub mod rows;
pub mod settings;
pub mod stock;
pub mod switch;
pub mod ways;
