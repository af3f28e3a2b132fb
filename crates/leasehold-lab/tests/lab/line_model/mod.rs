//! Every history of a few clients on one line, with messages delayed, lost and repeated and clients that fall silent.
//!
//! The checks are on the side of the clients: the windows in which they trust their grants never overlap, and a
//! resource that checks fences takes no write of an older grant after one of a younger. Clients that count their
//! trust wrongly must be caught, or the model proves nothing.

mod world;

use leasehold::engine::Mode;
use stateright::{Checker, HasDiscoveries, Model, Property};

use world::{Message, Phase, State, Trust, Word, World, id};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Tick,
    Say(usize, Word),
    Write(usize),
    Deliver(Message),
    /// Delivered, and still under way.
    Repeat(Message),
    Lose(Message),
    Silence(usize),
    Sweep,
    Evict,
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < self.end {
            actions.push(Action::Tick);
        }
        for who in 0..self.modes.len() {
            let words = self.words(state, who).into_iter();
            actions.extend(words.map(|word| Action::Say(who, word)));
            if self.may_write(state, who) {
                actions.push(Action::Write(who));
            }
            if self.faults && state.clients[who].phase == Phase::Asking {
                actions.push(Action::Silence(who));
            }
        }
        for message in &state.net {
            actions.push(Action::Deliver(*message));
            if self.faults {
                actions.push(Action::Lose(*message));
            }
            if state.repeated < self.repeats && matches!(message, Message::Word { .. }) {
                actions.push(Action::Repeat(*message));
            }
        }
        if self.faults {
            actions.push(Action::Sweep);
        }
        if self.evicts && !state.evicted {
            actions.push(Action::Evict);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Tick => state.now += 1,
            Action::Say(who, word) => self.say(&mut state, who, word),
            Action::Write(who) => self.write(&mut state, who),
            Action::Repeat(message) => {
                state.repeated += 1;
                self.deliver(&mut state, message);
            }
            Action::Deliver(message) => {
                let _ = state.net.remove(&message);
                self.deliver(&mut state, message);
            }
            Action::Lose(message) => {
                let _ = state.net.remove(&message);
            }
            Action::Silence(who) => state.clients[who].phase = Phase::Silent,
            Action::Sweep => self.sweep(&mut state),
            Action::Evict => self.evict(&mut state),
        }
        self.forget(&mut state);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ORDER, |_, state: &State| in_order(state)),
            Property::always(FENCES, |_, state: &State| {
                state.grants.is_sorted_by(|older, younger| older < younger)
            }),
            Property::always(RESOURCE, |_, state: &State| !state.resource.went_back),
        ];
        if !self.evicts {
            properties.push(Property::always(
                EXCLUSION,
                |world: &Self, state: &State| {
                    let who = (0..world.modes.len()).filter(|who| world.trusts(state, *who));
                    let trusted: u64 = who.map(|who| world.weight(state, who)).sum();
                    trusted <= u64::from(world.modes[0].capacity())
                },
            ));
        }
        if self.faults {
            properties.push(Property::sometimes(PUSHED, pushed_after_silence));
        }
        if self.writes {
            properties.push(Property::sometimes(REFUSED, |_, state: &State| {
                state.resource.refused
            }));
        }
        if !self.faults {
            properties.push(Property::eventually(SERVED, |_, state: &State| {
                let served = |client: &world::Client| client.fence.is_some();
                state.clients.iter().all(served) && state.line.is_idle()
            }));
        }
        if self.modes.contains(&Mode::Write) {
            properties.push(Property::sometimes(
                DOWNGRADED,
                |world: &Self, state: &State| {
                    let trusting = (0..world.modes.len()).filter(|who| world.trusts(state, *who));
                    let (wrote, reads): (Vec<_>, Vec<_>) =
                        trusting.partition(|who| world.modes[*who] == Mode::Write);
                    !wrote.is_empty() && !reads.is_empty()
                },
            ));
        }
        properties
    }
}

const EXCLUSION: &str = "the windows of trust fit the capacity";
const ORDER: &str = "holders fit, the first waiter does not, and holders come first";
const FENCES: &str = "every grant has a larger fence";
const RESOURCE: &str = "no write of an older grant after one of a younger";
const PUSHED: &str = "a push reaches a waiter after the holder fell silent";
const REFUSED: &str = "the resource refuses a late write";
const DOWNGRADED: &str = "a reader beside a writer that became one";
const SERVED: &str = "every client is served and leaves";

fn in_order(state: &State) -> bool {
    let line = &state.line;
    let capacity = u64::from(line.capacity());
    let taken: u64 = line.holders().map(|place| u64::from(place.weight)).sum();
    let fits = |weight: u32| taken + u64::from(weight) <= capacity;
    taken <= capacity
        && !line.waiters().next().is_some_and(|next| fits(next.weight))
        && line.holders().all(|place| place.fence.is_some())
        && line.waiters().all(|place| place.fence.is_none())
}

fn pushed_after_silence(world: &World, state: &State) -> bool {
    let trusting = |who: &usize| world.trusts(state, *who) && state.clients[*who].pushed;
    let ended = |who: &usize| {
        let client = &state.clients[*who];
        let there = state.line.places().any(|place| place.id == id(*who));
        client.phase == Phase::Silent && client.fence.is_some() && !there
    };
    let all = 0..world.modes.len();
    all.clone().any(|who| trusting(&who)) && all.clone().any(|who| ended(&who))
}

/// The real thing: every fault, the trust that the session uses.
fn world(modes: &[Mode]) -> World {
    World {
        modes: modes.to_vec(),
        trust: Trust::Sending,
        end: 3,
        beats: 1,
        room: 2,
        faults: true,
        repeats: 1,
        evicts: false,
        writes: false,
        gate: true,
    }
}

fn holds(name: &str, world: World) {
    let checker = world.checker().threads(2).spawn_bfs().join();
    println!(
        "{name}: {} states, {} generated",
        checker.unique_state_count(),
        checker.state_count()
    );
    assert!(checker.is_done());
    checker.assert_properties();
}

/// The checker must find how this world goes wrong.
fn breaks(name: &str, world: World, property: &'static str) {
    let checker = world
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let Some(path) = checker.discovery(property) else {
        panic!(
            "{name}: {} states and no violation of: {property}",
            checker.unique_state_count()
        );
    };
    let steps = path.into_actions();
    println!("{name}: broken after {} steps: {steps:?}", steps.len());
}

const fn permits(count: u32) -> Mode {
    Mode::Permits { count, of: 2 }
}

#[test]
fn two_on_a_mutex() {
    holds("two on a mutex", world(&[Mode::Mutex; 2]));
}

#[test]
fn a_writer_and_a_reader() {
    for modes in [[Mode::Write, Mode::Read], [Mode::Read, Mode::Write]] {
        let world = World {
            repeats: 0,
            ..world(&modes)
        };
        holds("a writer and a reader", world);
    }
}

/// Three clients, in less time.
fn three(modes: [Mode; 3]) -> World {
    World {
        end: 2,
        beats: 0,
        repeats: 0,
        ..world(&modes)
    }
}

#[test]
fn three_on_a_mutex() {
    holds("three on a mutex", three([Mode::Mutex; 3]));
}

#[test]
fn a_semaphore_of_two() {
    let modes = [permits(1), permits(2), permits(1)];
    holds("a semaphore of two", three(modes));
}

#[test]
fn every_client_is_served_without_faults() {
    for modes in [
        vec![Mode::Mutex; 3],
        vec![Mode::Read, Mode::Write, Mode::Read],
        vec![permits(1), permits(2), permits(1)],
    ] {
        let calm = World {
            end: 0,
            beats: 1,
            room: 9,
            faults: false,
            repeats: 0,
            ..world(&modes)
        };
        holds("without faults", calm);
    }
}

#[test]
fn fences_hold_under_eviction() {
    holds(
        "eviction",
        World {
            evicts: true,
            writes: true,
            beats: 0,
            repeats: 0,
            ..world(&[Mode::Mutex; 2])
        },
    );
}

#[test]
fn wrong_clients_are_caught() {
    let two = world(&[Mode::Mutex; 2]);
    for (name, trust) in [
        ("counts from the reply", Trust::Reply),
        ("counts from the grant", Trust::Grant),
        ("ignores its deadline", Trust::Always),
    ] {
        breaks(
            name,
            World {
                trust,
                ..two.clone()
            },
            EXCLUSION,
        );
    }
    breaks(
        "a resource without a gate",
        World {
            gate: false,
            writes: true,
            ..two
        },
        RESOURCE,
    );
}
