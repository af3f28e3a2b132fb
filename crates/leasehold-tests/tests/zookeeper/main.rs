//! ZooKeeper: the contract, its hazards, and Curator and kazoo on the same locks.

mod accounts;
mod beds;
mod contract;
mod edge;
mod hazards;
mod interop;
mod isolation;
mod lost_answers;
mod overload;
mod runtimes;
