//! Random operations, done by the line and kept for the script.

use std::collections::BTreeMap;

use leasehold::Fence;
use leasehold::engine::{ClaimId, Mode, Release};
use leasehold::line::{Ask, Line, Moment};
use rand::RngExt;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::words::{
    claim_text, claim_words, claimed, evicted, heard, id, kind, messages, session, told,
};

const STEPS: u64 = 24;
/// In the future, so that the server lets no key go while it is used.
const START: u64 = 4_000_000_000_000_000;
const CLAIMS: u8 = 6;

/// One operation, for the line and for the script.
enum Op {
    Claim(Ask),
    Heartbeat(ClaimId),
    Release(ClaimId, u32),
    Evict(Option<Fence>),
}

/// The modes of a line; the last two do not belong.
fn modes(kind: u64) -> [Mode; 5] {
    use Mode::{Mutex, Read, Write};
    let of = |count, of| Mode::Permits { count, of };
    match kind {
        0 => [Mutex, Mutex, Mutex, Read, of(0, 1)],
        1 => [Read, Write, Read, Mutex, of(0, u32::MAX)],
        2 => [of(1, 2), of(2, 2), of(1, 2), of(1, 3), of(3, 2)],
        _ => [of(1, 4), of(3, 4), of(2, 4), of(4, 5), of(0, 4)],
    }
}

/// A sequence on its way: what the line said, to be compared with what the script says.
pub(crate) struct Sequence {
    pub(crate) steps: Vec<Value>,
    expected: Vec<(Value, BTreeMap<String, Vec<String>>)>,
    line: Line,
    now: u64,
}

pub(crate) fn sequence(random: &mut SmallRng, seen: &mut BTreeMap<&'static str, u64>) -> Sequence {
    let modes = modes(random.random_range(0..4));
    let mut sequence = Sequence {
        steps: Vec::new(),
        expected: Vec::new(),
        line: Line::new(0),
        now: START,
    };
    let mut clock = START;
    for _ in 0..random.random_range(1..=STEPS) {
        clock = tick(random, &sequence.line, clock);
        let late = if random.random_ratio(1, 12) {
            random.random_range(1..4)
        } else {
            0
        };
        sequence.now = clock - late;
        let op = draw(random, &modes, &sequence.line);
        sequence.step(&op, seen);
    }
    sequence
}

/// Time goes on a little, or to just before or just at the end of some claim.
fn tick(random: &mut SmallRng, line: &Line, clock: u64) -> u64 {
    match random.random_range(0..20) {
        0..12 => clock,
        12..18 => clock + random.random_range(1..400),
        _ => {
            let ends: Vec<_> = line.places().map(|place| place.deadline).collect();
            match ends.get(random.random_range(0..ends.len().max(1))) {
                Some(end) => clock.max(end - random.random_range(0..2)),
                None => clock,
            }
        }
    }
}

fn draw(random: &mut SmallRng, modes: &[Mode; 5], line: &Line) -> Op {
    let who = random.random_range(0..CLAIMS);
    match random.random_range(0..26) {
        0..12 => {
            let odd = random.random_ratio(1, 20);
            let mode = modes[if odd {
                random.random_range(3..5)
            } else {
                random.random_range(0..3)
            }];
            let lease = if random.random_ratio(1, 6) {
                random.random_range(0..4)
            } else {
                random.random_range(10..2000)
            };
            let waits = random.random_ratio(4, 5);
            Op::Claim(Ask {
                id: id(who),
                session: session(who),
                mode,
                lease,
                waits,
            })
        }
        12..18 => Op::Heartbeat(id(who)),
        18..24 => Op::Release(
            id(who),
            [0, 1, 2, 255, 256, u32::MAX][random.random_range(0..6)],
        ),
        24 => Op::Evict(None),
        _ => {
            let fences: Vec<_> = line.holders().filter_map(|place| place.fence).collect();
            let first = fences.get(random.random_range(0..fences.len().max(1)));
            let first = first.map_or(START, |fence| fence.get());
            Op::Evict(Some(Fence::new(first + random.random_range(0..300))))
        }
    }
}

impl Sequence {
    fn step(&mut self, op: &Op, seen: &mut BTreeMap<&'static str, u64>) {
        let at = Moment {
            now: self.now,
            floor: self.now,
        };
        let (answer, changes, words) = match op {
            Op::Claim(ask) => {
                let (answer, changes) = self.line.claim(ask, at);
                (claimed(answer), changes, claim_words(ask))
            }
            Op::Heartbeat(id) => {
                let (standing, changes) = self.line.heartbeat(*id, at);
                (
                    claimed(Ok(standing)),
                    changes,
                    vec![json!("beat"), json!("m"), json!(claim_text(*id))],
                )
            }
            Op::Release(id, used) => {
                let (release, changes) = self.line.release(*id, *used, at);
                let word = if release == Release::Released {
                    "released"
                } else {
                    "gone"
                };
                let words = vec![
                    json!("release"),
                    json!("m"),
                    json!(claim_text(*id)),
                    json!(used.to_string()),
                ];
                (json!([word]), changes, words)
            }
            Op::Evict(fence) => {
                let before: Vec<_> = self.line.places().cloned().collect();
                let changes = self.line.evict(*fence, at);
                let fence = fence.map_or(0, Fence::get).to_string();
                let words = vec![json!("evict"), json!("m"), json!(fence), json!("by why")];
                (evicted(&before, &changes), changes, words)
            }
        };
        *seen.entry(kind(&answer)).or_default() += 1;
        for change in &changes {
            *seen.entry(told(change)).or_default() += 1;
        }
        let time = [
            json!((self.now / 1_000_000).to_string()),
            json!((self.now % 1_000_000).to_string()),
        ];
        self.steps
            .push(Value::Array(time.into_iter().chain(words).collect()));
        self.expected.push((answer, messages(&changes)));
        if self.line.is_idle() {
            let last = self.line.last_fence();
            self.line = Line::new(if last < self.now { 0 } else { last });
        }
    }

    /// The script's words against the line's.
    pub(crate) fn agrees(&self, said: &str, seed: u64) {
        let said: Value = serde_json::from_str(said).expect("JSON");
        let [results, left, fields] = [&said[0], &said[1], &said[2]];
        for (at, (answer, messages)) in self.expected.iter().enumerate() {
            let context = || format!("seed {seed}, step {at} of {:#?}", &self.steps[..=at]);
            assert_eq!(&results[at][0], answer, "{}", context());
            assert_eq!(&heard(&results[at][1]), messages, "{}", context());
        }
        self.leaves(left, fields, seed);
    }

    /// What is left of the line: nothing but its counter once it is idle, and everything ends by itself.
    fn leaves(&self, left: &Value, fields: &Value, seed: u64) {
        let left = left.as_array().cloned().unwrap_or_default();
        let fields = fields.as_array().map_or(0, Vec::len);
        let kinds: String = left.iter().filter_map(|key| key[0].as_str()).collect();
        let context = format!("seed {seed}: {left:?} of {:?}", self.line);
        let expected = match (self.line.is_idle(), self.line.last_fence()) {
            (true, 0) => "",
            (true, _) => ":",
            // One string, while no more than one waits for another.
            (false, _) if fields == 0 && self.line.places().len() <= 2 => ":",
            (false, _) => ":wd",
        };
        assert_eq!(kinds, expected, "{context}");
        let fields_expected = match expected {
            "" => 0,
            ":" => usize::from(self.line.is_idle()),
            _ => 1 + self.line.places().len(),
        };
        assert_eq!(fields, fields_expected, "{context}");
        // Not before the claims in it do.
        let ends = |key: &Value| key[2].as_bool().unwrap_or(false);
        assert!(
            left.iter().all(ends),
            "a key for ever, or too short: {context}"
        );
    }
}
