//! Random operations, done by the line and by the script.

use std::collections::BTreeMap;

use leasehold::Fence;
use leasehold::engine::{ClaimId, Mode, Release};
use leasehold::line::{Ask, Change, Line, Moment};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::server::{Did, Server};
use super::words::{
    asked, claimed, evicted, free, id, kept, kind, messages, session, told, word_list,
};

const STEPS: u64 = 24;
const START: u64 = 1_800_000_000_000_000;
const CLAIMS: u8 = 6;

/// One operation, for the line and for the script.
#[derive(Debug, Clone, Copy)]
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

/// A sequence on its way.
pub(crate) struct Sequence {
    seed: u64,
    line: Line,
    clock: u64,
    now: u64,
    /// When the line's key ends.
    expiry: Option<u64>,
    /// When each claim was alone, and with which lease.
    alone: BTreeMap<u128, (u64, u64)>,
    done: Vec<String>,
}

impl Sequence {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            line: Line::new(0),
            clock: START,
            now: START,
            expiry: None,
            alone: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    pub(crate) fn run(
        mut self,
        random: &mut SmallRng,
        server: &mut Server,
        seen: &mut BTreeMap<&'static str, u64>,
    ) {
        let modes = modes(random.random_range(0..4));
        // A server may stand still, or be slow, in the middle of a call.
        let step = if random.random_ratio(1, 3) {
            random.random_range(1..2_000)
        } else {
            0
        };
        server.clear();
        for _ in 0..random.random_range(1..=STEPS) {
            self.tick(random);
            let op = self.draw(random, &modes);
            let keys = if random.random_ratio(1, 10) { 1 } else { 3 };
            let words = self.words(&op, random.random_ratio(2, 3));
            let did = server.run(self.now, step, keys, &words);
            (self.now, self.clock) = (did.now, self.clock.max(did.now));
            let now = self.now.cast_signed() - START.cast_signed();
            let text = format!("{now} with {keys} keys: {op:?}: {did:?}");
            self.done.push(text);
            self.step(&op, &did, seen);
        }
    }

    fn context(&self) -> String {
        let (seed, done) = (self.seed, self.done.join("\n  "));
        format!("seed {seed}, after\n  {done}\nthe line is {:#?}", self.line)
    }

    /// Time goes on a little, or to around the end of some claim or of the key; now and then an operation is late.
    fn tick(&mut self, random: &mut SmallRng) {
        let ends: Vec<_> = self.line.places().map(|place| place.deadline).collect();
        let end = ends.get(random.random_range(0..ends.len().max(1)));
        let around = [
            -3_000, -1_000, -250, -1, 0, 1, 250, 750, 1_000, 1_500, 3_000,
        ];
        let around = around[random.random_range(0..around.len())];
        self.clock = match (random.random_range(0..20), end, self.expiry) {
            (0..9, ..) => self.clock,
            (9..14, ..) => self.clock + random.random_range(1..400),
            (14, _, Some(expiry)) => self.clock.max(expiry.saturating_add_signed(around)),
            (_, Some(end), _) => self.clock.max(end.saturating_add_signed(around)),
            _ => self.clock + random.random_range(1..4_000),
        };
        let late = match random.random_range(0..24) {
            0 => random.random_range(1..4),
            1 => random.random_range(1..3_000),
            _ => 0,
        };
        self.now = self.clock - late;
    }

    fn draw(&self, random: &mut SmallRng, modes: &[Mode; 5]) -> Op {
        let who = random.random_range(0..CLAIMS);
        match random.random_range(0..26) {
            0..12 => {
                let odd = random.random_ratio(1, 20);
                let mode = modes[if odd {
                    random.random_range(3..5)
                } else {
                    random.random_range(0..3)
                }];
                let lease = match random.random_range(0..6) {
                    0 => random.random_range(0..4),
                    1..4 => random.random_range(10..2_000),
                    _ => random.random_range(2_000..40_000),
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
                let fences: Vec<_> = self
                    .line
                    .holders()
                    .filter_map(|place| place.fence)
                    .collect();
                let first = fences.get(random.random_range(0..fences.len().max(1)));
                let first = first.map_or(START, |fence| fence.get());
                Op::Evict(Some(Fence::new(first + random.random_range(0..300))))
            }
        }
    }

    /// The operation as the script is told. A claim that was alone is mostly released as such.
    fn words(&self, op: &Op, as_alone: bool) -> Vec<Vec<u8>> {
        match op {
            Op::Claim(ask) => {
                let fits = (1..=ask.mode.capacity()).contains(&ask.mode.weight());
                let what = match (fits, ask.waits) {
                    (true, true) => "claim",
                    (true, false) => "try",
                    (false, _) => "ask",
                };
                let mut words = word_list(what, []);
                words.extend([asked(ask), kept(ask.lease).to_string().into()]);
                words
            }
            Op::Heartbeat(id) => word_list("beat", [id_text(*id)]),
            Op::Release(id, used) => match self.alone.get(&id.as_u128()) {
                Some((since, lease)) if as_alone => free(*id, *since, *lease, *used),
                _ => word_list("release", [id_text(*id), used.to_string()]),
            },
            Op::Evict(fence) => {
                let fence = fence.map_or(0, Fence::get).to_string();
                word_list("evict", [fence, "by why".to_owned()])
            }
        }
    }

    fn step(&mut self, op: &Op, did: &Did, seen: &mut BTreeMap<&'static str, u64>) {
        let mut count = |what| *seen.entry(what).or_default() += 1;
        let at = Moment {
            now: self.now,
            floor: self.now,
        };
        if did.before.ends[0] == -2 {
            let ended = self.line.places().all(|place| place.deadline <= self.now);
            let passed = self.line.last_fence() < self.now;
            assert!(ended && passed, "a key ended too soon: {}", self.context());
            if !self.line.is_idle() {
                count("ended by itself");
            }
            self.line = Line::new(0);
        }
        let first = did.answer.first().map_or("", String::as_str);
        if first.starts_with("TRYAGAIN") {
            count("needs all keys");
            return self.refused(op, at, did);
        }
        if let ("alone", Op::Claim(ask)) = (first, op) {
            count("alone");
            let _ = self.alone.insert(ask.id.as_u128(), (self.now, ask.lease));
        }
        let (answer, changes) = self.expected(op, at);
        count(kind(&answer));
        changes.iter().for_each(|change| count(told(change)));
        assert_eq!(said(did), answer, "{}", self.context());
        assert_eq!(heard(did), messages(&changes), "{}", self.context());
        self.forget_idle();
        self.leaves(did);
    }

    /// An idle line is nothing but its counter, while that is ahead of the clock.
    fn forget_idle(&mut self) {
        if self.line.is_idle() {
            let last = self.line.last_fence();
            self.line = Line::new(if last < self.now { 0 } else { last });
        }
    }

    /// A call with the first key alone that needs the others: at most a claim that was alone and has ended is dropped.
    fn refused(&mut self, op: &Op, at: Moment, did: &Did) {
        if did.before.string && !did.after.string {
            let mut changes = self.line.sweep(at);
            changes.retain(|change| !matches!(op, Op::Claim(ask) if ask.id == change.claim));
            self.forget_idle();
            assert_eq!(heard(did), messages(&changes), "{}", self.context());
        } else {
            assert_eq!(
                (did.after, &did.told),
                (did.before, &vec![]),
                "{}",
                self.context()
            );
        }
        assert!(!did.after.ends.contains(&-1), "an end: {}", self.context());
    }

    /// The line's answer.
    fn expected(&mut self, op: &Op, at: Moment) -> (Vec<String>, Vec<Change>) {
        match op {
            Op::Claim(ask) => {
                let (answer, changes) = self.line.claim(ask, at);
                (claimed(answer), changes)
            }
            Op::Heartbeat(id) => {
                let (standing, changes) = self.line.heartbeat(*id, at);
                (claimed(Ok(standing)), changes)
            }
            Op::Release(id, used) => {
                let (release, changes) = self.line.release(*id, *used, at);
                let released = release == Release::Released;
                let word = if released { "released" } else { "gone" };
                (vec![word.to_owned()], changes)
            }
            Op::Evict(fence) => {
                let before: Vec<_> = self.line.places().cloned().collect();
                let changes = self.line.evict(*fence, at);
                (evicted(&before, &changes), changes)
            }
        }
    }

    /// The keys of the line are there while it has claims, nothing but its counter is once it is idle, and every key ends
    /// by itself, but not before what it is there for.
    fn leaves(&mut self, did: &Did) {
        let left = &did.after;
        let count = self.line.places().len() as i64;
        let there = left.ends.map(|end| end != -2);
        let expected = match (count, self.line.last_fence()) {
            (0, 0) => [false, false, false],
            (0, _) => [true, false, false],
            _ => [true, !left.string, !left.string],
        };
        assert_eq!(there, expected, "keys: {}", self.context());
        let claims = if left.string { [0; 3] } else { [count; 3] };
        assert_eq!(left.claims, claims, "claims: {}", self.context());
        let ends = self.line.places().map(|place| place.deadline);
        let needed = ends.chain([self.line.last_fence()]).max().unwrap_or(0);
        for end in left.ends.iter().filter(|end| **end != -2) {
            let end = end.max(&0).unsigned_abs() * 1_000;
            // Well ahead, so that no end is past in the middle of a call.
            let late = end > needed && end > self.now + 1_000_000;
            assert!(late, "a key ends too soon, or never: {}", self.context());
        }
        let end = u64::try_from(left.ends[0]).ok();
        self.expiry = end.map(|millis| millis * 1_000);
    }
}

fn id_text(id: ClaimId) -> String {
    format!("{:032x}", id.as_u128())
}

/// The script's words as the line would say them.
fn said(did: &Did) -> Vec<String> {
    let mut words = did.answer.clone();
    match words.first().map(String::as_str) {
        Some("alone") => {
            let [seconds, micros] =
                [1, 2].map(|at: usize| words[at].parse::<u64>().expect("a time"));
            let fence = seconds * 1_000_000 + micros + 1;
            vec!["held".to_owned(), fence.to_string(), "0".to_owned()]
        }
        // The server's time is told as well.
        Some("waiting") => {
            words.truncate(3);
            words
        }
        _ => words,
    }
}

fn heard(did: &Did) -> BTreeMap<String, Vec<String>> {
    did.told.iter().cloned().collect()
}
