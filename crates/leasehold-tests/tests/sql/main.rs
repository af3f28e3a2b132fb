//! The databases: the contract, their hazards, the statements against the rule, effects in the caller's transaction.

mod accounts;
mod bad_names;
mod beds;
mod contract;
mod crowd;
mod edge;
mod effect;
mod hazards;
mod hostile;
mod isolation;
mod limits;
mod lockers;
mod lost;
mod lost_answers;
mod network;
mod overload;
mod planted;
mod roles;
mod rule;
mod runtimes;
mod servers;
mod sqlite_file;
mod stores;
mod tables;
