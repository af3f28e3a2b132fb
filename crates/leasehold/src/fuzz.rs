//! Parsers are given inputs that no program wrote: neighbours of the inputs in `tests/corpus`, and of every input whose
//! outcome was not seen before.
//!
//! A normal test run makes some thousand inputs for each parser, the same ones every time. `LEASEHOLD_FUZZ=10000000` makes
//! as many as it says, and `LEASEHOLD_FUZZ_KEEP=1` writes the shortest input of each outcome back into the corpus. An input
//! that panics, takes seconds, or makes the process large is printed in hexadecimal: mend the parser, and add the line to
//! the corpus.

#![cfg_attr(
    fuzzing,
    allow(
        dead_code,
        unused_imports,
        missing_docs,
        reason = "half of it is for the tests"
    )
)]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use crate::sync::Shared;

/// Inputs of a normal test run.
const SOME: u64 = 10_000;

/// Longer inputs are cut.
const LONGEST: usize = 1024;

/// More outcomes than these are not told apart.
const OUTCOMES: usize = 2_000;

/// No input takes as long, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much larger the process may become, in KiB.
const LARGER: u64 = 256 * 1024;

/// For `cargo fuzz`, which makes the inputs and sees which ways through the parser they take.
#[cfg(fuzzing)]
pub mod guided {
    use std::cell::RefCell;

    use crate::engine::{host_fuzzed, url_fuzzed};
    use crate::engines::{consul, etcd, file, redis, sql, zookeeper};

    thread_local! {
        pub(super) static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    /// Gives one input to the parser of this name.
    pub fn parse(parser: &str, input: &[u8]) {
        INPUT.set(input.to_vec());
        match parser {
            "answer" => redis::answer::inputs_that_no_server_wrote(),
            "consul" => consul::fuzzed::inputs_that_no_agent_wrote(),
            "etcd" => etcd::fuzzed::inputs_that_no_member_wrote(),
            "host" => host_fuzzed::inputs_that_no_person_wrote(),
            "jute" => zookeeper::jute::inputs_that_no_server_wrote(),
            "key" => redis::key::inputs_that_no_person_wrote(),
            "name" => crate::name::tests::inputs_that_no_person_wrote(),
            "node" => zookeeper::node::inputs_that_no_person_wrote(),
            "notice" => sql::fuzzed::inputs_that_no_client_wrote(),
            "record" => file::fuzzed::inputs_that_no_program_of_ours_wrote(),
            "resp" => redis::resp::inputs_that_no_server_wrote(),
            "stored" => crate::kinds::fuzzed::inputs_that_no_program_of_ours_wrote(),
            "url" => url_fuzzed::inputs_that_no_person_wrote(),
            "value" => redis::value::inputs_that_no_server_wrote(),
            other => panic!("no parser is called {other}"),
        }
    }
}

/// What a parser is given first, and how its inputs are changed.
pub(crate) struct Fuzz<'a> {
    /// The parser; its corpus is `tests/corpus/NAME.hex`.
    pub(crate) name: &'static str,
    /// Words that mean something to it.
    pub(crate) words: &'a [&'a [u8]],
}

impl Fuzz<'_> {
    /// Gives inputs to a parser. What it answers stands for the outcome: few different answers, for as different ways
    /// through the parser.
    pub(crate) fn run<T: Hash>(&self, seeds: &[Vec<u8>], parse: impl Fn(&[u8]) -> T) {
        #[cfg(fuzzing)]
        return drop(guided::INPUT.with_borrow(|input| parse(input)));
        #[cfg(not(fuzzing))]
        self.run_many(seeds, parse);
    }

    fn run_many<T: Hash>(&self, seeds: &[Vec<u8>], parse: impl Fn(&[u8]) -> T) {
        let count =
            std::env::var("LEASEHOLD_FUZZ").map_or(SOME, |count| count.parse().expect("a number"));
        let before = largest();
        let (tell, told) = channel::<()>();
        let current = Shared::from((0_u64, Vec::new()));
        let outcomes = std::thread::scope(|scope| {
            let current = &current;
            let _ = scope.spawn(move || {
                let mut last = None;
                while told.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    let (at, input) = current.lock().clone();
                    if last.replace(at) == Some(at) {
                        eprintln!("{}: no end with {}", self.name, hex(&input));
                        std::process::abort();
                    }
                }
            });
            let outcomes = self.explore(count, seeds, current, parse);
            drop(tell);
            outcomes
        });
        let grown = largest().saturating_sub(before);
        println!(
            "{}: {count} inputs, {} outcomes, {grown} KiB larger",
            self.name,
            outcomes.len()
        );
        assert!(grown < LARGER, "{}: {grown} KiB larger", self.name);
        if std::env::var_os("LEASEHOLD_FUZZ_KEEP").is_some() {
            self.keep(outcomes);
        }
    }

    fn explore<T: Hash>(
        &self,
        count: u64,
        seeds: &[Vec<u8>],
        current: &Shared<(u64, Vec<u8>)>,
        parse: impl Fn(&[u8]) -> T,
    ) -> Vec<Vec<u8>> {
        let mut known: Vec<_> = self.corpus().into_iter().chain(seeds.to_vec()).collect();
        known.push(Vec::new());
        let (first, mut random) = (known.len(), Random(1));
        // Where the shortest input of each outcome is.
        let mut outcomes = HashMap::new();
        for at in 0..count.max(first as u64) {
            let input = match known.get(at as usize).filter(|_| at < first as u64) {
                Some(seed) => seed.clone(),
                None => self.changed(&known, &mut random),
            };
            *current.lock() = (at, input.clone());
            let Ok(outcome) = catch_unwind(AssertUnwindSafe(|| parse(&input))) else {
                panic!("{}: a panic with {}", self.name, hex(&input));
            };
            let mut hasher = DefaultHasher::new();
            outcome.hash(&mut hasher);
            match outcomes.get(&hasher.finish()) {
                Some(at) if Vec::len(&known[*at]) > input.len() => known[*at] = input,
                Some(_) => {}
                None if outcomes.len() < OUTCOMES => {
                    let _ = outcomes.insert(hasher.finish(), known.len());
                    known.push(input);
                }
                None => {}
            }
        }
        known.split_off(first)
    }

    /// A neighbour of a known input.
    fn changed(&self, known: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
        const NUMBERS: [u64; 9] = [
            0,
            1,
            127,
            255,
            65_535,
            0x7fff_ffff,
            0xffff_ffff,
            i64::MAX as u64,
            u64::MAX,
        ];
        let mut input = random.one_of(known).clone();
        for _ in 0..=random.below(4) {
            let at = random.below(input.len() + 1);
            let end = at + random.below((input.len() - at).min(32) + 1);
            let number = random.one_of(&NUMBERS);
            let other = random.one_of(known);
            match random.below(9) {
                0 => drop(input.drain(at..end)),
                1 => drop(input.splice(at..end, random.next().to_le_bytes())),
                2 if at < input.len() => input[at] ^= 1 << random.below(8),
                3 if at < input.len() => input[at] = random.next() as u8,
                4 => drop(input.splice(at..end, number.to_string().into_bytes())),
                5 => {
                    let width = 1 << random.below(4);
                    let mut bytes = number.to_be_bytes()[8 - width..].to_vec();
                    if random.below(2) == 0 {
                        bytes.reverse();
                    }
                    drop(input.splice(at..end, bytes));
                }
                6 => drop(input.splice(at..end, input[at..end].repeat(2 + random.below(8)))),
                7 if !self.words.is_empty() => {
                    drop(input.splice(at..end, random.one_of(self.words).to_vec()));
                }
                _ => {
                    let from = random.below(other.len() + 1);
                    drop(input.splice(at.., other[from..].to_vec()));
                }
            }
        }
        input.truncate(LONGEST);
        input
    }

    fn path(&self) -> PathBuf {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
        PathBuf::from(corpus).join(format!("{}.hex", self.name))
    }

    fn corpus(&self) -> Vec<Vec<u8>> {
        let path = self.path();
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("the corpus {}: {error}", path.display()));
        text.lines().map(bytes).collect()
    }

    fn keep(&self, mut lines: Vec<Vec<u8>>) {
        lines.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        let text: String = lines.iter().map(|input| hex(input) + "\n").collect();
        std::fs::write(self.path(), text).expect("written");
    }
}

/// Splitmix64: the same inputs in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a digit");
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// The most memory this process ever had, in KiB.
fn largest() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.expect("a line").trim().trim_end_matches(" kB");
    number.parse().expect("a number")
}
