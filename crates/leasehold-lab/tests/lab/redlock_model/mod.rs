//! Every history of two clients and three nodes under Redlock, with delays, pauses, a clock that jumps and a node that
//! starts again with nothing.
//!
//! The plain protocol must be caught breaking, or the model proves nothing: by a pause, by a clock, by a restart. With
//! the protocol of the engine a resource that checks fences takes effects in the order of the locks all the same.

mod world;

use stateright::{Checker, HasDiscoveries, Model, Property};

use world::{Action, Gate, Second, State, World};

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.choices(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.step(&mut state, action);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(FENCES, |_, state: &State| {
                let [a, b] = &state.clients;
                let (Some(of_a), Some(of_b)) = (a.fence, b.fence) else {
                    return true;
                };
                (!a.later || of_b < of_a) && (!b.later || of_a < of_b)
            }),
            Property::always(RESOURCE, |_, state: &State| !state.resource.went_back),
            Property::sometimes(BOTH, |_, state: &State| {
                state.clients.iter().all(|client| client.fence.is_some())
            }),
        ];
        if self.jumps == 0 {
            properties.push(Property::always(EXCLUSION, excluded));
        }
        if self.second == Second::Confirmed {
            properties.push(Property::always(UNIQUE, |_, state: &State| {
                let [a, b] = &state.clients;
                a.fence.is_none() || a.fence != b.fence
            }));
        }
        if self.gate != Gate::Open {
            properties.push(Property::sometimes(REFUSED, |_, state: &State| {
                state.resource.refused
            }));
        }
        properties
    }
}

fn excluded(world: &World, state: &State) -> bool {
    !(world.trusts(state, 0) && world.trusts(state, 1))
}

const EXCLUSION: &str = "the windows of trust do not overlap";
const FENCES: &str = "a claim that begins after a grant has a larger fence";
const UNIQUE: &str = "no two grants have the same fence";
const RESOURCE: &str = "no write of a holder after one of the next";
const BOTH: &str = "both are granted";
const REFUSED: &str = "the resource refuses a late write";

/// The engine's protocol, with clocks that are right and nodes that keep their memory.
const OURS: World = World {
    end: 2,
    jumps: 0,
    restarts: 0,
    abstains: true,
    clocked: false,
    uneven: false,
    second: Second::Confirmed,
    gate: Gate::Number,
};

fn holds(name: &str, world: World) {
    let checker = world.checker().threads(2).spawn_bfs().join();
    println!("{name}: {} states", checker.unique_state_count());
    assert!(checker.is_done());
    checker.assert_properties();
}

/// The checker must find how this world goes wrong.
fn breaks(name: &str, world: World, property: &'static str) {
    let search = world
        .checker()
        .finish_when(HasDiscoveries::AnyOf([property].into()));
    let checker = search.threads(2).spawn_bfs().join();
    let Some(path) = checker.discovery(property) else {
        panic!(
            "{name}: {} states and no violation of: {property}",
            checker.unique_state_count()
        );
    };
    let steps = path.into_actions();
    println!("{name}: broken after {} steps: {steps:?}", steps.len());
}

#[test]
fn a_pause_breaks_it_without_fences() {
    breaks(
        "a pause",
        World {
            gate: Gate::Open,
            ..OURS
        },
        RESOURCE,
    );
}

#[test]
fn a_clock_that_jumps_breaks_exclusion() {
    // Asked for as the property of a world that thinks its clocks are right.
    let world = Jumpy(World { jumps: 1, ..OURS });
    let search = world.checker().finish_when(HasDiscoveries::Any);
    let checker = search.threads(2).spawn_bfs().join();
    let path = checker
        .discovery(EXCLUSION)
        .expect("two holders at the same time");
    println!("a clock: broken after {:?}", path.into_actions());
}

/// A world of clocks that jump, asked for exclusion.
struct Jumpy(World);

impl Model for Jumpy {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        self.0.init_states()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.0.choices(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        self.0.next_state(last, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(
            EXCLUSION,
            |jumpy: &Self, state: &State| excluded(&jumpy.0, state),
        )]
    }
}

#[test]
fn fences_of_the_majority_hold_under_pauses() {
    holds(
        "pauses",
        World {
            uneven: true,
            ..OURS
        },
    );
}

#[test]
fn fences_of_the_majority_hold_under_a_jump() {
    holds("a jump", World { jumps: 1, ..OURS });
    holds(
        "a jump, fences that follow the clock",
        World {
            jumps: 1,
            clocked: true,
            ..OURS
        },
    );
}

/// Without the second phase a later holder can have a smaller fence: the two majorities share a node, and that node
/// need not be the one with the largest number.
#[test]
fn one_phase_is_not_enough() {
    breaks(
        "one phase",
        World {
            second: Second::None,
            uneven: true,
            ..OURS
        },
        FENCES,
    );
}

/// Stored by any majority, the fences of two grants that overlap can be the same number: then the owner must decide.
#[test]
fn a_stored_fence_can_be_had_twice() {
    let stored = World {
        jumps: 1,
        second: Second::Stored,
        ..OURS
    };
    breaks("the same number twice", stored.clone(), RESOURCE);
    holds(
        "number and owner",
        World {
            gate: Gate::Owner,
            ..stored
        },
    );
}

#[test]
fn a_restart_with_nothing_breaks_it() {
    let forgets = World {
        restarts: 1,
        ..OURS
    };
    breaks(
        "votes at once",
        World {
            abstains: false,
            ..forgets.clone()
        },
        EXCLUSION,
    );
    // Staying out for a lease saves exclusion, not the counter.
    breaks("counters are lost", forgets, FENCES);
}

#[test]
fn a_restart_with_nothing_is_harmless_with_clocked_fences() {
    holds(
        "a restart",
        World {
            restarts: 1,
            clocked: true,
            ..OURS
        },
    );
}
