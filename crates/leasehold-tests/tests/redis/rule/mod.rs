//! The script against `line.rs`: the same random operations at the same times, and every answer, every message and
//! what is left must agree.

mod sequence;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::engine::Clock;
use leasehold_testkit::servers::redis::Redis;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use self::sequence::sequence;

const SCRIPT: &str = concat!(
    include_str!("../../../../leasehold/src/engines/redis/alone.lua"),
    "\n",
    include_str!("../../../../leasehold/src/engines/redis/pair.lua"),
    "\n",
    include_str!("../../../../leasehold/src/engines/redis/crowd.lua"),
    "\n",
    include_str!("../../../../leasehold/src/engines/redis/beat.lua"),
    "\n",
    include_str!("../../../../leasehold/src/engines/redis/line.lua"),
);

/// How many sequences there are, unless the time is over first.
const SEQUENCES: u64 = 100_000;
const LONGEST: Duration = Duration::from_secs(60);
/// Sequences per round trip.
const BATCH: u64 = 50;

const KEY: &str = "t:{00}:x";

/// The script as a function of the time and of where to put messages, run on a list of operations.
fn harness() -> String {
    let published = "redis.pcall(string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, message)";
    let collected = "PUBLISHED[#PUBLISHED + 1] = channel .. '\\n' .. message";
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
        "local results, alone = {}, {}
         local function int(number) return string.format('%d', number) end
         for i, step in ipairs(cjson.decode(ARGV[1])) do
           local published = {}
           local time = { table.remove(step, 1), table.remove(step, 1) }
           local id, lease = step[3], step[7]
           if step[1] == 'claim' then
             local _, session, weight, capacity, _, waits, who = unpack(step, 3)
             local asked = struct.pack('<sddds', id, lease, weight, capacity, session) .. who
             local fits = weight + 0 > 0 and weight + 0 <= capacity + 0
             step = { fits and (waits == '1' and 'claim' or 'try') or 'ask', step[2], asked, '60000' }
           elseif step[1] == 'release' and alone[id] and i % 3 > 0 then
             local seconds, micros, lease = unpack(alone[id])
             local since, used = seconds * 1000000 + micros, math.min(math.max(step[4], 1), 256)
             step = { 'free', step[2], seconds .. ' ' .. micros .. ' ' .. id, struct.pack('<dd', since + used, since + lease) }
           elseif step[1] == 'release' and i % 2 > 0 then
             step[1] = 'leave'
           end
           local answer = rule(KEYS, step, time, published)
           if type(answer) == 'string' then
             local said = {}
             for word in string.gmatch(answer, '%S+') do said[#said + 1] = word end
             table.remove(said, 1)
             if said[1] == 'alone' then
               alone[id] = { said[2], said[3], lease }
               said = { 'held', int(said[2] * 1000000 + said[3] + 1), '0' }
             end
             local number = said[1] == 'waiting' and 2 or 3
             if said[number] then said[number] = tonumber(said[number]) end
             answer = { 'm', said }
           end
           results[i] = { answer[2], published }
         end
         local left = {}
         local last = redis.call('ZREVRANGE', 't:{00}dx', 0, 0, 'WITHSCORES')[2]
         local text = redis.call('MGET', 't:{00}:x')[1] or ''
         if string.find(text, '^[+*]') then last = struct.unpack('<d', text, 2) end
         if string.find(text, '^[*]') then last = math.max(struct.unpack('<d', text, 26), last) end
         for _, kind in ipairs({ ':', 'w', 'd' }) do
           local key = 't:{00}' .. kind .. 'x'
           if redis.call('EXISTS', key) == 1 then
             local ends = redis.call('PEXPIRETIME', key)
             local outlives = ends > 0 and (not last or ends * 1000 >= tonumber(last))
             left[#left + 1] = { kind, ends, outlives }
           end
         end
         local fields = {}
         if redis.call('TYPE', 't:{00}:x').ok == 'hash' then fields = redis.call('HKEYS', 't:{00}:x') end
         redis.call('DEL', 't:{00}:x', 't:{00}wx', 't:{00}dx')
         return cjson.encode({ results, left, fields })"
    )
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

/// One call may name a line twice: a session has two claims on it. What the first does is what the second finds.
#[test]
fn a_line_named_twice_changes_once() {
    let server = Redis::start();
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut connection = client.get_connection().expect("connected");
    let mut run = |keys: usize, words: &[&[u8]]| -> Vec<String> {
        let mut call = redis::cmd("EVAL");
        let _ = call.arg(SCRIPT).arg(keys);
        let said: redis::Value = call
            .arg(vec![KEY; keys])
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

/// What came of it, without the numbers.
fn first_word(answer: &redis::Value) -> String {
    let word = match answer {
        redis::Value::Array(words) => &words[0],
        word => word,
    };
    let word: String = redis::from_redis_value(word.clone()).expect("a word");
    word.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
