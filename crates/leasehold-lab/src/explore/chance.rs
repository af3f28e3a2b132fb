//! The chances of one run. Each choice has a key and depends on the seed and its key alone: one can be left
//! out without moving the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::program::{Order, World};
use crate::random::Random;

/// Where something may go otherwise than at once and as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// A task of the program is not polled for a while.
    Stall,
    /// A call is on its way to the engine.
    Request,
    /// Its answer is on its way back.
    Answer,
    /// An event is on its way.
    Event,
    /// An event comes a second time.
    Twice,
    /// An event is lost.
    Missed,
    /// A call, or its answer, is lost.
    Fault,
    /// A call comes to the engine a second time.
    Again,
}

/// One choice: the actor, the place, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The task, or the client behind the tasks.
    pub actor: usize,
    /// Where.
    pub point: Point,
    /// The how-manieth there.
    pub number: u64,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} of actor {}",
            self.point, self.number, self.actor
        )
    }
}

/// The choices of one run. Clones share them.
#[derive(Debug, Clone)]
pub struct Chance(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    seed: u64,
    world: World,
    muted: BTreeSet<Key>,
    drawn: Mutex<Drawn>,
}

#[derive(Debug, Default)]
struct Drawn {
    counts: BTreeMap<(usize, Point), u64>,
    /// Choices that made a difference.
    made: BTreeMap<Key, String>,
    /// All choices so far: what priorities change by.
    steps: u64,
}

/// In priority order a run has about so many choices.
const STEPS: u64 = 150;

impl Chance {
    /// The choices of a seed, without these.
    pub fn new(seed: u64, world: &World, muted: &BTreeSet<Key>) -> Self {
        Self(Arc::new(Inner {
            seed,
            world: world.clone(),
            muted: muted.clone(),
            drawn: Mutex::default(),
        }))
    }

    fn drawn(&self) -> std::sync::MutexGuard<'_, Drawn> {
        self.0.drawn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The choices that made a difference, and what they came to.
    pub fn made(&self) -> BTreeMap<Key, String> {
        self.drawn().made.clone()
    }

    fn key(&self, actor: usize, point: Point) -> (Key, Random, u64) {
        let mut drawn = self.drawn();
        let count = drawn.counts.entry((actor, point)).or_default();
        let number = *count;
        *count += 1;
        drawn.steps += 1;
        let step = drawn.steps;
        let key = Key {
            actor,
            point,
            number,
        };
        let place = (actor as u64) << 40 | (point as u64) << 32 | number;
        (key, Random::of(self.0.seed, place), step)
    }

    fn note(&self, key: Key, what: impl FnOnce() -> String) -> bool {
        if self.0.muted.contains(&key) {
            return false;
        }
        let _ = self.drawn().made.insert(key, what());
        true
    }

    /// Yes in one of so many cases.
    pub fn happens(&self, actor: usize, point: Point, cases: u64) -> Option<Random> {
        let (key, mut random, _) = self.key(actor, point);
        (random.one_in(cases) && self.note(key, || "happens".into())).then_some(random)
    }

    /// How long something takes beyond its usual time.
    pub fn delay(&self, actor: usize, point: Point) -> Duration {
        let world = &self.0.world;
        let (key, mut random, step) = self.key(actor, point);
        let longest = world.longest.as_micros() as u64;
        let micros = match world.order {
            _ if longest == 0 => 0,
            Order::Random if random.one_in(3) => spread(&mut random, longest),
            Order::Random => 0,
            Order::Late(late) if late == point => random.below(longest),
            Order::Late(_) => 0,
            // A slow task stays slow, but for a few moments at which another stands still.
            Order::Priorities(changes) => {
                let mut moments = Random::of(self.0.seed, 1);
                if (0..changes).any(|_| moments.below(STEPS) == step) {
                    longest
                } else {
                    let slow = Random::of(self.0.seed, 1_000 + actor as u64 * 8 + point as u64);
                    slow.clone().below(6).saturating_sub(2) * longest / 40
                }
            }
        };
        let delay = Duration::from_micros(micros);
        if micros > 0 && self.note(key, || format!("{delay:?}")) {
            return delay;
        }
        Duration::ZERO
    }
}

/// From a microsecond to the longest, each order of magnitude as likely as the others.
fn spread(random: &mut Random, longest: u64) -> u64 {
    let digits = random.below(7) as u32;
    (longest / 10_u64.pow(digits / 2))
        .max(1)
        .min(1 + random.below(longest))
}
