//! The file engine: the contract, and its hazards with real processes.

mod contract;
mod edge;
mod hazards;
mod isolation;
mod runtimes;
