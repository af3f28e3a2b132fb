//! The script on a server whose clock stands where the test says.

use leasehold_testkit::servers::redis::Redis;
use redis::Value;

use super::{KEYS, SCRIPT};

/// A server, and the script on it.
pub(crate) struct Server {
    redis: Redis,
    connection: redis::Connection,
    script: String,
}

/// The keys of the line as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// When each key ends, in milliseconds: -1 for never, -2 for a key that is not there.
    pub(crate) ends: [i64; 3],
    /// Whether the line is one string.
    pub(crate) string: bool,
    /// Of the hash, without its numbers; and of the two sets.
    pub(crate) claims: [i64; 3],
}

/// The outcome of a run of the script.
#[derive(Debug)]
pub(crate) struct Did {
    /// When, as the script saw it.
    pub(crate) now: u64,
    pub(crate) before: Left,
    pub(crate) answer: Vec<String>,
    /// The messages by channel, in order.
    pub(crate) told: Vec<(String, Vec<String>)>,
    pub(crate) after: Left,
}

/// The script, and beside its answer the time it saw, its messages, and the keys before and after it.
fn watched() -> String {
    let time = "local time = redis.call('TIME')";
    let publish = "redis.pcall(string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, posts[channel])";
    for part in [time, publish] {
        let found = SCRIPT.matches(part).count();
        assert_eq!(found, 1, "the script has changed: {part}");
    }
    let rule = SCRIPT
        .replace(time, "local time = redis.call('TIME')\nSEEN = time")
        .replace(
            publish,
            "TOLD[#TOLD + 1] = channel .. '\\n' .. posts[channel]",
        );
    [
        "local TOLD, SEEN = {}, nil
         local function look(KEYS)
           local string = redis.call('TYPE', KEYS[1]).ok == 'string'
           local left = { string and 1 or 0 }
           left[2] = string and 0 or redis.call('HLEN', KEYS[1]) - redis.call('HEXISTS', KEYS[1], 'n')
           left[3], left[4] = redis.call('ZCARD', KEYS[2]), redis.call('ZCARD', KEYS[3])
           for i = 1, 3 do left[4 + i] = redis.call('PEXPIRETIME', KEYS[i]) end
           return left
         end
         local all = cjson.decode(table.remove(ARGV))
         local before = look(all)
         local function rule()\n",
        &rule,
        "\nend
         local answer = rule()
         if type(answer) == 'table' and answer[2].err then answer[2] = { answer[2].err } end
         return { SEEN, before, answer, TOLD, look(all) }",
    ]
    .concat()
}

impl Server {
    pub(crate) fn start() -> Self {
        let redis = Redis::with_clock();
        let client = redis::Client::open(redis.url()).expect("a URL");
        let mut connection = client.get_connection().expect("connected");
        let mut load = redis::cmd("SCRIPT");
        let script = load.arg("LOAD").arg(watched()).query(&mut connection);
        Self {
            redis,
            connection,
            script: script.expect("the script compiles"),
        }
    }

    /// The script at this moment of the server's clock, with so many of the line's keys. Every look of the server at its
    /// clock moves it on by the step.
    pub(crate) fn run(&mut self, now: u64, step: u64, keys: usize, words: &[Vec<u8>]) -> Did {
        let mut call = redis::cmd("EVALSHA");
        let _ = call.arg(&self.script).arg(keys).arg(&KEYS[..keys]);
        let _ = call.arg(words).arg(serde_json::json!(KEYS).to_string());
        self.redis.stop_clock_at(now, step);
        let said: (Vec<u64>, Value, Value, Vec<String>, Value) =
            call.query(&mut self.connection).expect("no script fails");
        let (time, before, answer, told, after) = said;
        Did {
            now: time[0] * 1_000_000 + time[1],
            before: left(&before),
            answer: words_of(answer),
            told: messages(&told),
            after: left(&after),
        }
    }

    /// Forgets the line.
    pub(crate) fn clear(&mut self) {
        let _: i64 = redis::cmd("DEL")
            .arg(&KEYS)
            .query(&mut self.connection)
            .expect("deleted");
    }
}

fn left(said: &Value) -> Left {
    let [string, claims @ .., a, b, c] =
        &redis::from_redis_value::<Vec<i64>>(said.clone()).expect("numbers")[..]
    else {
        panic!("{said:?}")
    };
    Left {
        ends: [*a, *b, *c],
        string: *string == 1,
        claims: claims.try_into().expect("three counts"),
    }
}

/// The words behind the mark.
fn words_of(answer: Value) -> Vec<String> {
    let text = |word: &Value| match word {
        Value::Int(number) => number.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    };
    match answer {
        Value::Array(answers) => match &answers[1] {
            Value::Array(words) => words.iter().map(text).collect(),
            word => vec![text(word)],
        },
        word => text(&word).split(' ').skip(1).map(str::to_owned).collect(),
    }
}

fn messages(told: &[String]) -> Vec<(String, Vec<String>)> {
    let message = |one: &String| {
        let mut lines = one.lines().map(str::to_owned);
        (lines.next().unwrap_or_default(), lines.collect())
    };
    told.iter().map(message).collect()
}
