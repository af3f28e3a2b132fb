//! Starts the shop as it would run, buys, breaks what can be broken, and writes down what was seen.
//!
//! - [`fleet`]: the servers, two instances, nginx.
//! - [`http`], [`load`]: one request, and thirty clients.
//! - [`rows`]: the table of a load. [`uses`]: the category tree and the red packet. [`failures`]: one failure after the other.
//! - [`pages`], [`comparison`], [`picture`]: what the documentation shows of it.

pub mod comparison;
pub mod failures;
pub mod fleet;
pub mod http;
pub mod load;
pub mod pages;
pub mod picture;
pub mod rows;
pub mod uses;
