//! The engines, a folder each.

#[cfg(feature = "file")]
pub(crate) mod file;
pub(crate) mod memory;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;
