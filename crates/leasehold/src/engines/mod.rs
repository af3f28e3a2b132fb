//! The engines, a folder each.

#[cfg(feature = "consul")]
pub(crate) mod consul;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
#[cfg(all(feature = "file", unix))]
pub(crate) mod file;
pub(crate) mod memory;
#[cfg(any(feature = "zookeeper", feature = "etcd", feature = "consul"))]
mod ordered;
#[cfg(feature = "redis")]
pub(crate) mod redis;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub(crate) mod sql;
#[cfg(any(
    feature = "redis",
    feature = "zookeeper",
    feature = "etcd",
    feature = "consul"
))]
mod tls;
#[cfg(feature = "zookeeper")]
pub(crate) mod zookeeper;
