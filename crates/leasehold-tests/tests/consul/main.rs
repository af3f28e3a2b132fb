//! Consul: the contract, and its hazards.

mod accounts;
mod agents;
mod beds;
mod contract;
mod edge;
mod foreign;
mod hazards;
mod hostile;
mod interop;
mod isolation;
mod lost_answers;
mod overload;
mod runtimes;
mod shared_accounts;
