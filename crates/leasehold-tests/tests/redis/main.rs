//! Redis: the contract, its hazards, the script against the rule; Redisson's layout; Redlock.

mod accounts;
mod bad_keys;
mod beds;
mod contract;
mod edge;
mod forged;
mod hazards;
mod hostile_sentinel;
mod isolation;
mod lost_answers;
mod many;
mod migration;
mod network;
mod overload;
mod peer;
mod redisson;
mod redlock;
mod rights;
mod rule;
mod runtimes;
mod servers;
mod stores;
