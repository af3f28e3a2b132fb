//! Redlock: the contract and its hazards.

mod contract;
mod forged;
mod hazards;
