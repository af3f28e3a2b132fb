//! The planted bugs.

mod consul;
mod core;
mod delivery;
mod engines;
mod kinds;
mod ordered;

use super::Mutant;

// A bug that one run in two hundred shows is missed by so many seeds once in twenty thousand times.
const MUTEX: &str = "simulate mutex --seeds 2000";
const READ_WRITE: &str = "simulate read-write --seeds 2000";
const SEMAPHORE: &str = "simulate semaphore --seeds 2000";
const MANY: &str = "simulate many-and-again --seeds 2000";
const IN_ORDER: &str = "simulate in-order --seeds 500";
/// Ends at the first program that breaks a promise.
const EXPLORE: &str = "explore --seeds 20000";
const SQLITE: &str = "torture sqlite: --for 6s --seed 1 --faults evict";
const FILE: &str = "torture file: --for 6s --seed 1";

/// `{redis}` is a server of its own.
const REDIS: &str = "torture {redis} --for 8s --seed 1 --faults kill";

const fn mutant(
    name: &'static str,
    file: &'static str,
    before: &'static str,
    after: &'static str,
    scenario: &'static str,
) -> Mutant {
    Mutant {
        name,
        file,
        before,
        after,
        scenario,
    }
}

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Mutant> {
    let shared = core::CORE.iter().chain(delivery::DELIVERY);
    let ordered = ordered::ORDERED.iter().chain(consul::CONSUL);
    let engines = engines::ENGINES.iter().chain(ordered);
    shared.chain(kinds::KINDS).chain(engines)
}
