//! What is above the engines: the session under faults, the layers, and what the documentation says.

mod architecture;
mod closing;
mod connect;
mod delivery;
mod documentation;
mod outage;
mod session;
mod terms;
mod turns;
mod world;
