//! Above the engines: the session under faults, the layers, and the documentation.

mod architecture;
mod closing;
mod connect;
mod crowded;
mod delivery;
mod documentation;
mod outage;
mod readme;
mod runs;
mod security;
mod session;
mod terms;
mod turns;
mod world;
