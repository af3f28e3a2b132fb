//! Searches for an order of effects that explains a history. Exponential, and so simple that it can be read.

use leasehold_lab::history::{Answer, Hold, NEVER};

/// One step that takes effect at some instant from `call` to `ret`.
struct Step {
    call: u64,
    ret: u64,
    /// A step without a seen answer need not have happened.
    must: bool,
    does: Does,
}

enum Does {
    Acquire { weight: u32, fence: u64 },
    Release { weight: u32, of: usize },
    FindBusy { weight: u32 },
}

/// Whether some order explains every answer. `tries`: also those that found no room.
pub(crate) fn explains(holds: &[Hold], tries: bool) -> bool {
    let Some(capacity) = holds.first().map(|hold| hold.capacity) else {
        return true;
    };
    let mut steps = Vec::new();
    for hold in holds {
        let (weight, fence) = (hold.weight, hold.fence);
        match hold.answer {
            Answer::Granted => {
                let of = steps.len();
                steps.push(Step {
                    call: hold.call,
                    ret: hold.got,
                    must: true,
                    does: Does::Acquire { weight, fence },
                });
                let told = hold.free != NEVER;
                steps.push(Step {
                    call: hold.end,
                    ret: hold.free,
                    must: told,
                    does: Does::Release { weight, of },
                });
            }
            Answer::Unknown if tries => {
                let of = steps.len();
                steps.push(Step {
                    call: hold.call,
                    ret: NEVER,
                    must: false,
                    does: Does::Acquire { weight, fence: 0 },
                });
                steps.push(Step {
                    call: hold.call,
                    ret: NEVER,
                    must: false,
                    does: Does::Release { weight, of },
                });
            }
            Answer::Busy if tries => {
                steps.push(Step {
                    call: hold.call,
                    ret: hold.got,
                    must: true,
                    does: Does::FindBusy { weight },
                });
            }
            _ => {}
        }
    }
    let mut search = Search {
        seen: vec![0; (1 << steps.len()) / 64 + 1],
        steps,
        capacity: u64::from(capacity),
    };
    search.from(0, 0, [0, 0])
}

struct Search {
    steps: Vec<Step>,
    capacity: u64,
    /// The sets of steps from which there is no way on. The weight taken follows from the set.
    seen: Vec<u64>,
}

impl Search {
    /// `fences`: the largest so far of those that are alone, and of readers.
    fn from(&mut self, done: usize, taken: u64, fences: [u64; 2]) -> bool {
        let left = |index: usize| done & (1 << index) == 0;
        if (0..self.steps.len()).all(|index| !left(index) || !self.steps[index].must) {
            return true;
        }
        if self.seen[done / 64] & (1 << (done % 64)) != 0 {
            return false;
        }
        self.seen[done / 64] |= 1 << (done % 64);
        for index in (0..self.steps.len()).filter(|index| left(*index)) {
            let step = &self.steps[index];
            if (0..self.steps.len()).any(|other| left(other) && self.steps[other].ret < step.call) {
                continue;
            }
            let next = match step.does {
                Does::Acquire { weight, fence: own }
                    if taken + u64::from(weight) <= self.capacity =>
                {
                    let reads = self.capacity == u64::from(u32::MAX) && weight == 1;
                    let [alone, readers] = fences;
                    if own != 0 && (own <= alone || (own <= readers && !reads)) {
                        continue;
                    }
                    let next = if reads {
                        [alone, own.max(readers)]
                    } else {
                        [own.max(alone), readers]
                    };
                    (taken + u64::from(weight), next)
                }
                Does::Release { weight, of } if !left(of) => (taken - u64::from(weight), fences),
                Does::FindBusy { weight } if taken + u64::from(weight) > self.capacity => {
                    (taken, fences)
                }
                _ => continue,
            };
            if self.from(done | (1 << index), next.0, next.1) {
                return true;
            }
        }
        false
    }
}
