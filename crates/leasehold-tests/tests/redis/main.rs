//! Redis: the contract, its hazards, the script against the rule; Redisson's layout; Redlock.

mod contract;
mod forged;
mod hazards;
mod isolation;
mod many;
mod network;
mod redisson;
mod redlock;
mod rights;
mod rule;
mod servers;
