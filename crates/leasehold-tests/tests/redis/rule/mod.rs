//! The script against `line.rs`: the same random operations at the same times, and every answer, every message and
//! every key that is left must agree. The server's clock is the test's, so keys end as they do in use.

mod leases;
mod sequence;
mod server;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::engine::Clock;
use leasehold_testkit::servers::redis::Redis;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use self::sequence::Sequence;
use self::server::Server;

const SCRIPT: &str = concat!(
    include_str!("../../../../leasehold/src/engines/redis/own/alone.lua"),
    "\n",
    include_str!("../../../../leasehold/src/engines/redis/own/store.lua"),
    "\n",
    include_str!("../../../../leasehold/src/engines/redis/own/line.lua"),
);

const KEYS: [&str; 3] = ["t:{00}:x", "t:{00}wx", "t:{00}dx"];

/// Sequences in which they did not agree once.
const BROKEN_ONCE: [u64; 1] = [2_761_736_354_518_838_934];

/// How long the sequences take.
const LONGEST: Duration = Duration::from_secs(40);

#[test]
fn the_script_and_the_line_agree() {
    let mut server = Server::start();
    let clock = Clock::boot();
    let end = clock.now() + LONGEST.as_micros() as u64;
    let mut seen = BTreeMap::new();
    let first: u64 = rand::rng().next_u64();
    let mut done = 0_u64;
    let mut seeds = BROKEN_ONCE
        .into_iter()
        .chain((0..).map(|next| first.wrapping_add(next)));
    while clock.now() < end {
        let seed = seeds.next().expect("there is always another");
        Sequence::new(seed).run(&mut SmallRng::seed_from_u64(seed), &mut server, &mut seen);
        done += 1;
    }
    println!("{done} sequences from seed {first}: {seen:#?}");
    assert_eq!(seen.len(), 15, "something never happened: {seen:?}");
    assert!(
        seen.values().all(|count| *count >= 20),
        "something hardly happened: {seen:?}"
    );
}

/// One call may name a line twice: a session has two claims on it. The second finds the state that the first left.
#[test]
fn a_line_named_twice_changes_once() {
    let server = Redis::start();
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut connection = client.get_connection().expect("connected");
    let mut run = |lines: usize, words: &[&[u8]]| -> Vec<String> {
        let mut call = redis::cmd("EVAL");
        let _ = call.arg(SCRIPT).arg(lines * 3);
        let said: redis::Value = call
            .arg(vec![KEYS; lines].concat())
            .arg(words)
            .query(&mut connection)
            .expect("it runs");
        match said {
            redis::Value::Array(answers) => answers[1..].iter().map(first_word).collect(),
            one => vec![first_word(&one)],
        }
    };
    let numbers = [9_000_000.0_f64, 1.0, 1.0].map(f64::to_le_bytes);
    let asked = [b"a\0", numbers.as_flattened(), b"p.1\0who"].concat();
    let claim: [&[u8]; 4] = [b"try", b"m", &asked, b"18001"];
    assert_eq!(run(1, &claim), ["m alone"], "free");
    let release: [&[u8]; 6] = [b"release", b"m", b"a", b"1", b"b", b"1"];
    assert_eq!(run(2, &release), ["released", "gone"]);
    assert_eq!(run(2, &[b"beat", b"m", b"b", b"a"]), ["gone", "gone"]);
    assert_eq!(run(1, &claim), ["m alone"], "free again");
    assert_eq!(
        run(3, &[b"beat", b"m", b"b", b"c", b"a"]),
        ["gone", "gone", "held"]
    );
    assert_eq!(run(2, &release), ["released", "gone"]);
    assert_eq!(server.cli("KEYS *").trim(), "", "nothing is left");
}

/// The outcome, without the numbers.
fn first_word(answer: &redis::Value) -> String {
    let word = match answer {
        redis::Value::Array(words) => &words[0],
        word => word,
    };
    let word: String = redis::from_redis_value(word.clone()).expect("a word");
    word.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
