//! ZooKeeper: the contract, its hazards, and Curator and kazoo on the same locks.

mod contract;
mod edge;
mod hazards;
mod interop;
