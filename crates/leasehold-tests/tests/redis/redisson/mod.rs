//! Redisson's layout: the contract, its hazards, and Redisson itself on the same locks.

mod contract;
mod hazards;
mod interop;
