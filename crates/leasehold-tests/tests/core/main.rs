//! Above the engines: the session under faults, the layers, the documentation, and what several engines have in common.

mod architecture;
mod closing;
mod connect;
mod crowded;
mod delivery;
mod documentation;
mod fence_floor;
mod outage;
mod readme;
mod runs;
mod security;
mod session;
mod terms;
mod turns;
mod world;
