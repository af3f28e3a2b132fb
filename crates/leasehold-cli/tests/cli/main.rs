//! The real command, as processes, on directories of their own.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails, helpers included"
)]

mod common;
mod loss;
#[cfg(feature = "all-engines")]
mod moving;
mod nested;
#[cfg(feature = "redis")]
mod redis;
mod run;
mod secrets;
mod status;
#[cfg(feature = "all-engines")]
mod texts;
mod tty;
mod usage;
#[cfg(feature = "zookeeper")]
mod zookeeper;
