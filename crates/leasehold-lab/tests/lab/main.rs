//! What is proved without an engine's own tests, in one program: most of these wait for leases while others compute.

mod checker;
mod exhibits;
mod explore;
mod faults;
mod line_model;
mod redlock_model;
mod simulation;
mod torture;
