//! What can go wrong with etcd.
