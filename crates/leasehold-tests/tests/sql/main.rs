//! The databases: the contract, their hazards, the statements against the rule, effects in the caller's transaction.

mod bad_names;
mod beds;
mod contract;
mod edge;
mod effect;
mod hazards;
mod isolation;
mod lockers;
mod lost;
mod lost_answers;
mod network;
mod overload;
mod roles;
mod rule;
mod servers;
mod tables;
