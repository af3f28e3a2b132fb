//! Consul: the contract, and its hazards.

mod beds;
mod contract;
mod edge;
mod hazards;
mod interop;
mod isolation;
mod lost_answers;
mod overload;
mod runtimes;
