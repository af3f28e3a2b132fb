//! The script against `line.rs`: the same random operations at the same times, and every answer, every message and
//! what is left must agree.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::Fence;
use leasehold::engine::{ClaimId, Clock, Mode, Release, SessionId, Standing};
use leasehold::line::{Ask, Change, Line, Moment, Refusal, What};
use leasehold_testkit::servers::redis::Redis;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::{Value, json};

const SCRIPT: &str = concat!(
    include_str!("../../leasehold/src/engines/redis/alone.lua"),
    "\n",
    include_str!("../../leasehold/src/engines/redis/line.lua"),
);

/// How many sequences there are, unless the time is over first.
const SEQUENCES: u64 = 100_000;
const LONGEST: Duration = Duration::from_secs(60);
const STEPS: u64 = 24;
/// Sequences per round trip.
const BATCH: u64 = 50;
/// In the future, so that the server lets no key go while it is used.
const START: u64 = 4_000_000_000_000_000;

const KEY: &str = "t:{00}:x";
const CLAIMS: u8 = 6;

/// The script as a function of the time and of where to put messages, run on a list of operations.
fn harness() -> String {
    let published = "redis.pcall(verb, channel, table.concat(posts[channel], '\\n'))";
    let collected =
        "PUBLISHED[#PUBLISHED + 1] = channel .. '\\n' .. table.concat(posts[channel], '\\n')";
    for part in ["redis.call('TIME')", published] {
        assert_eq!(
            SCRIPT.matches(part).count(),
            1,
            "the script has changed: {part}"
        );
    }
    let rule = SCRIPT
        .replace("redis.call('TIME')", "TIME")
        .replace(published, collected);
    format!(
        "local function rule(KEYS, ARGV, TIME, PUBLISHED)\n{rule}\nend\n{}",
        "local results = {}
         for i, step in ipairs(cjson.decode(ARGV[1])) do
           local published = {}
           local time = { table.remove(step, 1), table.remove(step, 1) }
           local answer = rule(KEYS, step, time, published)
           results[i] = { answer[2], published }
         end
         local left = {}
         for _, kind in ipairs({ ':', 'w', 'd' }) do
           local key = 't:{00}' .. kind .. 'x'
           if redis.call('EXISTS', key) == 1 then left[#left + 1] = { kind, redis.call('PTTL', key) } end
         end
         local fields = {}
         if redis.call('TYPE', 't:{00}:x').ok == 'hash' then fields = redis.call('HKEYS', 't:{00}:x') end
         redis.call('DEL', 't:{00}:x', 't:{00}wx', 't:{00}dx')
         return cjson.encode({ results, left, fields })"
    )
}

/// One operation, for the line and for the script.
enum Op {
    Claim(Ask),
    Heartbeat(ClaimId),
    Release(ClaimId, u32),
    Evict(Option<Fence>),
}

fn id(who: u8) -> ClaimId {
    ClaimId::from_u128(u128::from(who) + 1)
}

/// Three sessions of two processes.
fn session(who: u8) -> SessionId {
    SessionId::from_u128(u128::from(who % 3))
}

fn session_text(session: SessionId) -> String {
    let number = session.as_u128();
    format!("p{}.{number:032x}", number % 2)
}

fn claim_text(id: ClaimId) -> String {
    format!("{:032x}", id.as_u128())
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
struct Sequence {
    steps: Vec<Value>,
    expected: Vec<(Value, BTreeMap<String, Vec<String>>)>,
    line: Line,
    now: u64,
}

fn sequence(random: &mut SmallRng, seen: &mut BTreeMap<&'static str, u64>) -> Sequence {
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
    fn agrees(&self, said: &str, seed: u64) {
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
        let kinds: String = left.iter().filter_map(|pair| pair[0].as_str()).collect();
        let context = format!("seed {seed}: {left:?} of {:?}", self.line);
        let expected = match (self.line.is_idle(), self.line.last_fence()) {
            (true, 0) => "",
            (true, _) => ":",
            // One string, while nobody else has asked.
            (false, _) if fields == 0 && self.line.places().len() == 1 => ":",
            (false, _) => ":wd",
        };
        assert_eq!(kinds, expected, "{context}");
        let fields_expected = match expected {
            "" => 0,
            ":" => usize::from(self.line.is_idle()),
            _ => 8 + 2 * self.line.places().len(),
        };
        assert_eq!(fields, fields_expected, "{context}");
        assert!(
            left.iter()
                .all(|pair| pair[1].as_i64().is_some_and(|ttl| ttl > 0)),
            "a key for ever: {context}"
        );
    }
}

fn claim_words(ask: &Ask) -> Vec<Value> {
    vec![
        json!("claim"),
        json!("m"),
        json!(claim_text(ask.id)),
        json!(session_text(ask.session)),
        json!(ask.mode.weight().to_string()),
        json!(ask.mode.capacity().to_string()),
        json!(ask.lease.to_string()),
        json!(u8::from(ask.waits).to_string()),
        json!("who"),
    ]
}

fn claimed(answer: Result<Standing, Refusal>) -> Value {
    match answer {
        Ok(Standing::Held(held)) => {
            json!(["held", held.fence.get().to_string(), u8::from(held.wanted)])
        }
        Ok(Standing::Waiting { ahead, look_again }) => {
            json!(["waiting", ahead, look_again.as_micros().to_string()])
        }
        Ok(Standing::Busy) => json!(["busy"]),
        Ok(Standing::Gone | Standing::Unheard) => json!(["gone"]),
        Err(Refusal::Weight) => json!(["weight"]),
        Err(Refusal::Fences) => json!(["fences"]),
        Err(Refusal::Capacity(capacity)) => json!(["capacity", capacity]),
    }
}

fn evicted(before: &[leasehold::line::Place], changes: &[Change]) -> Value {
    let gone = changes.iter().filter(|change| change.what == What::Evicted);
    let granted = changes.iter().filter_map(|change| match change.what {
        What::Granted(held) => Some((change.claim, held.fence)),
        _ => None,
    });
    let granted: Vec<_> = granted.collect();
    let fences = gone.map(|change| {
        let place = before
            .iter()
            .find(|place| place.id == change.claim)
            .expect("it was there");
        let swept = granted
            .iter()
            .find(|(claim, _)| *claim == change.claim)
            .map(|(_, fence)| *fence);
        json!(place.fence.or(swept).expect("it held").get().to_string())
    });
    Value::Array(std::iter::once(json!("evicted")).chain(fences).collect())
}

/// What each process is told, in order.
fn messages(changes: &[Change]) -> BTreeMap<String, Vec<String>> {
    let mut messages = BTreeMap::<_, Vec<_>>::new();
    for change in changes {
        let session = session_text(change.session);
        let (letter, rest) = match change.what {
            What::Granted(held) => ("G", format!(" {} {}", held.fence, u8::from(held.wanted))),
            What::Wanted => ("W", String::new()),
            What::Expired => ("X", String::new()),
            What::Evicted => ("E", " by why".to_owned()),
        };
        let channel = format!("t:!{}", session.split('.').next().unwrap_or_default());
        let message = format!("{letter} {} {session}{rest}", claim_text(change.claim));
        messages.entry(channel).or_default().push(message);
    }
    messages
}

fn heard(published: &Value) -> BTreeMap<String, Vec<String>> {
    let published = published.as_array().cloned().unwrap_or_default();
    let message = |one: &Value| {
        let mut lines = one.as_str().unwrap_or_default().lines().map(str::to_owned);
        (lines.next().unwrap_or_default(), lines.collect())
    };
    published.iter().map(message).collect()
}

fn kind(answer: &Value) -> &'static str {
    let known = [
        "held", "waiting", "busy", "gone", "weight", "capacity", "released", "evicted",
    ];
    let word = answer[0].as_str().unwrap_or_default();
    known
        .into_iter()
        .find(|known| *known == word)
        .expect("a known answer")
}

fn told(change: &Change) -> &'static str {
    match change.what {
        What::Granted(_) => "told: granted",
        What::Wanted => "told: wanted",
        What::Expired => "told: expired",
        What::Evicted => "told: evicted",
    }
}

#[test]
fn the_script_and_the_line_agree() {
    let server = Redis::start();
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut connection = client.get_connection().expect("connected");
    let digest: String = redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(harness())
        .query(&mut connection)
        .expect("the script compiles");
    let clock = Clock::boot();
    let end = clock.now() + LONGEST.as_micros() as u64;
    let mut seen = BTreeMap::new();
    let first: u64 = rand::rng().next_u64();
    let mut done = 0;
    while done < SEQUENCES && clock.now() < end {
        let batch: Vec<_> = (done..done + BATCH)
            .map(|number| first.wrapping_add(number))
            .map(|seed| {
                (
                    seed,
                    sequence(&mut SmallRng::seed_from_u64(seed), &mut seen),
                )
            })
            .collect();
        let mut pipeline = redis::pipe();
        for (_, sequence) in &batch {
            let steps = Value::Array(sequence.steps.clone()).to_string();
            let _ = pipeline
                .cmd("EVALSHA")
                .arg(&digest)
                .arg(1)
                .arg(KEY)
                .arg(steps);
        }
        let said: Vec<String> = pipeline.query(&mut connection).expect("no script fails");
        for ((seed, sequence), said) in batch.iter().zip(said) {
            sequence.agrees(&said, *seed);
        }
        done += BATCH;
    }
    println!("{done} sequences from seed {first}: {seen:#?}");
    assert_eq!(seen.len(), 12, "something never happened: {seen:?}");
    assert!(
        seen.values().all(|count| *count >= 200),
        "something hardly happened: {seen:?}"
    );
}
