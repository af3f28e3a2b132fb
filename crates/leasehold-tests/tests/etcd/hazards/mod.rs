//! Faults of etcd.
