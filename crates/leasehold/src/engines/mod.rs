//! The engines, a folder each.

#[cfg(feature = "file")]
pub(crate) mod file;
pub(crate) mod memory;
#[cfg(feature = "zookeeper")]
mod ordered;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) mod sql;
#[cfg(any(feature = "redis", feature = "zookeeper"))]
mod tls;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;
