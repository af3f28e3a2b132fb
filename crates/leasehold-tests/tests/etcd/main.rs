//! etcd: the contract, its hazards, and other programs on the same locks.

mod accounts;
mod beds;
mod contract;
mod edge;
mod hazards;
mod hostile;
mod interop;
mod isolation;
mod lost_answers;
mod overload;
mod runtimes;
