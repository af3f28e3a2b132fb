//! Draws a program from a seed: each uses a few features at a time, so that they meet often.

use std::time::Duration;

use super::chance::Point;
use super::program::{
    Again, Fate, Hit, Kind, OWNERS, Order, Patience, Program, Step, Task, Terms, Want, World,
};
use crate::random::Random;

/// The features that a program uses.
struct Swarm {
    random: Random,
    world: World,
    keep_alive: bool,
    min_hold: bool,
    linger: bool,
    strict: bool,
    again: bool,
    /// All locks have the same owner.
    one_owner: bool,
    short: bool,
    /// Leases between half the usual one and all of it.
    similar: bool,
    tries: bool,
    drops: bool,
    downgrades: bool,
    both: bool,
    evicts: bool,
    asks: bool,
    shuts: bool,
    naps: bool,
}

/// The program of a seed.
pub fn draw(seed: u64) -> Program {
    let mut random = Random::of(seed, 7);
    let world = world(&mut random);
    let mut on = |cases| random.one_in(cases);
    let keep_alive = on(5);
    let mut swarm = Swarm {
        keep_alive,
        min_hold: on(6),
        linger: on(2),
        strict: on(5),
        again: on(3),
        one_owner: on(5),
        short: on(5),
        similar: on(3),
        tries: on(2),
        drops: on(2),
        downgrades: on(2),
        both: on(3),
        evicts: on(3),
        asks: on(6),
        shuts: on(5),
        naps: keep_alive || on(3),
        world,
        random,
    };
    let mut tasks: Vec<_> = (0..swarm.random.within(2, 6))
        .map(|_| swarm.task())
        .collect();
    swarm.meetings(&mut tasks);
    let hits = swarm.hits();
    Program {
        world: swarm.world,
        tasks,
        hits,
    }
}

fn world(random: &mut Random) -> World {
    let lease = *random.pick(&[1_000, 3_000, 3_000, 10_000]);
    let order = *random.pick(&[
        Order::Random,
        Order::Random,
        Order::Priorities(1),
        Order::Priorities(3),
        Order::Late(Point::Answer),
        Order::Late(Point::Event),
    ]);
    let longest = match order {
        Order::Late(_) => lease / 14,
        _ => *random.pick(&[0, 2, 2, 20, 20, 20, lease / 16, lease * 3 / 2]),
    };
    let longest = Duration::from_millis(longest);
    let kinds = [
        Kind::Mutex,
        Kind::Mutex,
        Kind::ReadWrite,
        Kind::ReadWrite,
        Kind::Permits(2),
        Kind::Permits(1),
    ];
    let names = (0..random.within(1, 3))
        .map(|_| *random.pick(&kinds))
        .collect();
    // A link that is just fast enough is late by nothing more.
    let far = random.one_in(12);
    let (trip, longest) = match far {
        true => (*random.pick(&[lease / 5, lease * 3 / 10]), Duration::ZERO),
        false => (*random.pick(&[0, 0, 1, 10, lease / 50]), longest),
    };
    World {
        lease: Duration::from_millis(lease),
        trip: Duration::from_millis(trip),
        longest,
        order,
        faults: random.one_in(5),
        loud: !random.one_in(3),
        drift: random.below(40_001) as i32 - 20_000,
        names,
        clients: random.within(1, 4) as usize,
    }
}

impl Swarm {
    fn task(&mut self) -> Task {
        let client = self.random.below(self.world.clients as u64) as usize;
        let mut steps = Vec::new();
        for _ in 0..self.random.within(2, 8) {
            let step = self.step();
            steps.push(step);
            if matches!(step, Step::Take(..)) && self.downgrades && self.random.one_in(3) {
                steps.push(Step::Downgrade);
            }
        }
        Task { client, steps }
    }

    /// Lets tasks meet: many rests end when another task begins a step.
    fn meetings(&mut self, tasks: &mut [Task]) {
        let lengths: Vec<_> = tasks.iter().map(|task| task.steps.len() as u64).collect();
        let random = &mut self.random;
        let steps = tasks.iter_mut().flat_map(|task| &mut task.steps);
        for step in steps.filter(|step| matches!(step, Step::Rest(_))) {
            if random.one_in(2) {
                let whom = random.below(lengths.len() as u64) as usize;
                *step = Step::Meet(whom, random.below(lengths[whom]) as usize);
            }
        }
    }

    fn step(&mut self) -> Step {
        let name = self.random.below(self.world.names.len() as u64) as usize;
        match self.random.below(20) {
            0..7 => self.take(name),
            7..10 => Step::Release,
            10 | 11 => Step::Drop,
            12 | 13 if self.downgrades => Step::Downgrade,
            12 if self.drops => Step::DropRelease(self.nap()),
            14 if self.evicts => Step::Evict(name),
            15 if self.asks => Step::Ask(name),
            16 if self.shuts && self.random.one_in(2) => Step::Shutdown(self.world.lease),
            _ => Step::Rest(self.nap()),
        }
    }

    fn take(&mut self, name: usize) -> Step {
        let want = match self.random.below(6) {
            0 if self.both => Want::Both,
            1 => Want::Many(2),
            2 | 3 => Want::Read,
            _ => Want::Whole,
        };
        let patience = match self.random.below(6) {
            0 | 1 if self.tries => Patience::Try,
            2 => Patience::Within(self.nap() * 2),
            3 if self.drops => Patience::DropAfter(self.nap()),
            _ => Patience::Wait,
        };
        Step::Take(name, want, patience, self.terms())
    }

    fn terms(&mut self) -> Terms {
        let random = &mut self.random;
        let mut on = |feature: bool| feature && random.one_in(2);
        let (fixed, kept, lingers) = (on(self.keep_alive), on(self.min_hold), on(self.linger));
        let (short, strict) = (on(self.short), on(self.strict));
        let similar = on(self.similar);
        let again = self.one_owner || (self.again && !random.one_in(4));
        let lease = self.world.lease;
        let lingers = lingers.then(|| *random.pick(&[lease / 10, lease * 3, lease * 20]));
        Terms {
            twentieths: match (short, similar) {
                (true, _) => 1,
                (_, true) => *random.pick(&[10, 12, 13, 15, 18]),
                _ => 20,
            },
            keep_alive: !fixed,
            min_hold: match kept {
                true => *random.pick(&[lease / 20, lease / 3, lease * 2]),
                false => Duration::ZERO,
            },
            linger: lingers.unwrap_or_default(),
            strict,
            again: match again {
                true if self.one_owner => Again::Owner(0),
                true if random.one_in(4) => Again::Task,
                true if random.one_in(4) => Again::Owner(OWNERS - 1),
                true => Again::Owner(0),
                false => Again::No,
            },
        }
    }

    /// Mostly short; where programs sleep, sometimes beyond a lease.
    fn nap(&mut self) -> Duration {
        let lease = self.world.lease.as_micros() as u64;
        let longest = match self.random.below(8) {
            0 if self.naps => lease * 2,
            1 if self.naps => lease,
            0..4 => lease / 20,
            _ => 2_000,
        };
        Duration::from_micros(self.random.below(longest))
    }

    fn hits(&mut self) -> Vec<Hit> {
        let count = [0, 0, 0, 1, 1, 2][self.random.below(6) as usize];
        let lease = self.world.lease;
        let mut hit = || {
            let random = &mut self.random;
            let name = random.below(self.world.names.len() as u64) as usize;
            let fate = match random.below(5) {
                0 => Fate::Outage(false),
                1 => Fate::Outage(true),
                2 => Fate::Sick(name),
                _ => Fate::Unsure,
            };
            Hit {
                client: random.below(self.world.clients as u64) as usize,
                fate,
                from: lease * random.below(8) as u32 / 40,
                length: lease * random.within(1, 13) as u32 / 4,
            }
        };
        (0..count).map(|_| hit()).collect()
    }
}
