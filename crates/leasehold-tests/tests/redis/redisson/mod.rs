//! Redisson's layout: the contract, its hazards, and Redisson itself on the same locks.

mod contract;
mod crowd;
mod hazards;
mod interop;
