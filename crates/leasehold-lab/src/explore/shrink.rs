//! Makes a program that breaks a promise short: steps, tasks, hits and delays go while the same promise stays broken.

use std::collections::BTreeSet;
use std::time::Duration;

use super::chance::Key;
use super::judge::Broken;
use super::program::{Order, Program};
use super::{Run, draw, run};
use crate::Outcome;

/// A short program, and what it breaks.
#[derive(Debug)]
pub struct Short {
    /// The seed of its delays.
    pub seed: u64,
    /// The program.
    pub program: Program,
    /// The promise.
    pub broken: Broken,
    /// Delays and losses that are left.
    pub made: Vec<(Key, String)>,
}

impl std::fmt::Display for Short {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.broken)?;
        write!(f, "{}", self.program)?;
        self.made
            .iter()
            .try_for_each(|(key, what)| writeln!(f, "{key}: {what}"))
    }
}

struct Shrinker {
    seed: u64,
    program: Program,
    muted: BTreeSet<Key>,
    last: (Broken, Run),
    /// Runs that are left.
    left: usize,
}

/// The shortest program found that breaks the same promise as this seed, if the seed breaks one again.
///
/// # Errors
/// If there is no runtime.
pub fn shrink(seed: u64) -> Outcome<Option<Short>> {
    let program = draw::draw(seed);
    let Some((broken, first)) = again(&program, seed, &BTreeSet::new(), None)? else {
        return Ok(None);
    };
    let mut shrinker = Shrinker {
        seed,
        program,
        muted: BTreeSet::new(),
        last: (broken, first),
        left: RUNS,
    };
    while shrinker.steps()? | shrinker.hits()? | shrinker.delays()? | shrinker.world()? {}
    let (broken, last) = shrinker.last;
    Ok(Some(Short {
        seed,
        program: shrinker.program,
        broken,
        made: last.made.into_iter().collect(),
    }))
}

/// So many smaller programs are tried.
const RUNS: usize = 600;

/// Tasks that are ready at once may run in another order: a few tries.
const TRIES: usize = 3;

fn again(
    program: &Program,
    seed: u64,
    muted: &BTreeSet<Key>,
    family: Option<&str>,
) -> Outcome<Option<(Broken, Run)>> {
    for _ in 0..TRIES {
        let run = run(program, seed, muted)?;
        if let Some(broken) = run.broken.clone()
            && family.is_none_or(|family| family == broken.family())
        {
            return Ok(Some((broken, run)));
        }
    }
    Ok(None)
}

impl Shrinker {
    /// Keeps a smaller program if it breaks the same promise.
    fn try_this(&mut self, program: Program, muted: BTreeSet<Key>) -> Outcome<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let family = self.last.0.family();
        let Some(last) = again(&program, self.seed, &muted, Some(&family))? else {
            return Ok(false);
        };
        (self.program, self.muted, self.last) = (program, muted, last);
        Ok(true)
    }

    fn steps(&mut self) -> Outcome<bool> {
        let mut shorter = false;
        for task in (0..self.program.tasks.len()).rev() {
            for step in (0..self.program.tasks[task].steps.len()).rev() {
                let mut program = self.program.clone();
                let _ = program.tasks[task].steps.remove(step);
                shorter |= self.try_this(program, self.muted.clone())?;
            }
        }
        Ok(shorter)
    }

    fn hits(&mut self) -> Outcome<bool> {
        let mut shorter = false;
        for hit in (0..self.program.hits.len()).rev() {
            let mut program = self.program.clone();
            let _ = program.hits.remove(hit);
            shorter |= self.try_this(program, self.muted.clone())?;
        }
        Ok(shorter)
    }

    fn delays(&mut self) -> Outcome<bool> {
        let mut shorter = false;
        let made: Vec<_> = self.last.1.made.keys().copied().collect();
        for key in made {
            let mut muted = self.muted.clone();
            if muted.insert(key) {
                shorter |= self.try_this(self.program.clone(), muted)?;
            }
        }
        Ok(shorter)
    }

    fn world(&mut self) -> Outcome<bool> {
        let mut shorter = false;
        let simpler: [fn(&mut Program); 4] = [
            |program| program.world.faults = false,
            |program| program.world.longest = Duration::ZERO,
            |program| program.world.trip = Duration::ZERO,
            |program| program.world.order = Order::Random,
        ];
        for simplify in simpler {
            let mut program = self.program.clone();
            simplify(&mut program);
            if program != self.program {
                shorter |= self.try_this(program, self.muted.clone())?;
            }
        }
        Ok(shorter)
    }
}
