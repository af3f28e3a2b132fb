//! What is above the engines: the session under faults, the layers, and what the documentation says.

mod architecture;
mod documentation;
mod session;
