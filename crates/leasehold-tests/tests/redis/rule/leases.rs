//! Scripts that have no line to be compared with: Redisson's layout and Redlock's node. Random operations at the server's
//! clock, and what must hold of every lock: one holder, none lost within its lease, fences that grow, an end on every key
//! of ours, and a free lock once every lease has ended.

use std::collections::BTreeMap;

use leasehold_testkit::servers::redis::Redis;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use redis::Value;

const REDISSON: &str = concat!(
    include_str!("../../../../leasehold/src/engines/redis/redisson/head.lua"),
    include_str!("../../../../leasehold/src/engines/redis/redisson/lock.lua"),
    include_str!("../../../../leasehold/src/engines/redis/redisson/fair.lua"),
    include_str!("../../../../leasehold/src/engines/redis/redisson/rwlock.lua"),
    include_str!("../../../../leasehold/src/engines/redis/redisson/semaphore.lua"),
    include_str!("../../../../leasehold/src/engines/redis/redisson/permits.lua"),
    include_str!("../../../../leasehold/src/engines/redis/redisson/tail.lua"),
);
const NODE: &str = include_str!("../../../../leasehold/src/engines/redis/redlock/node.lua");

const START: u64 = 1_800_000_000_000_000;
const OWNERS: u64 = 4;
const SEQUENCES: u64 = 400;

/// How a script is asked.
trait Layout {
    const SCRIPT: &'static str;
    fn keys(&self) -> Vec<&'static str>;
    /// The operations in turn; the last of them answers. `claim`, `beat`, `release` and `evict`.
    fn words(&self, what: &str, owner: &str, lease: u64, fence: u64) -> Vec<String>;
    /// Whether a key may stay for ever: it is not ours to end.
    fn stays(key: &str) -> bool;
}

/// An exclusive lock of Redisson's.
struct Redisson(&'static str);

impl Layout for Redisson {
    const SCRIPT: &'static str = REDISSON;

    fn keys(&self) -> Vec<&'static str> {
        let mut keys = vec!["x", "leasehold_redisson:x", "channel:{x}"];
        match self.0 {
            "fair" => keys.extend(["queue:{x}", "timeouts:{x}"]),
            "rw" => keys.push("{x}"),
            "permits" => keys.push("{x}:timeout"),
            _ => {}
        }
        keys
    }

    fn words(&self, what: &str, owner: &str, lease: u64, fence: u64) -> Vec<String> {
        let lease = (lease / 1_000).max(1).to_string();
        let mut words = vec![self.0.to_owned(), what.to_owned(), "m".to_owned()];
        words.extend([owner.to_owned(), lease]);
        match what {
            "release" => words.push("1".to_owned()),
            "evict" => words.extend([fence.to_string(), String::new()]),
            _ => words.extend(["who".to_owned(), "1".to_owned()]),
        }
        if what == "release" {
            words.push(String::new());
        }
        words.extend(match self.0 {
            "rw" => vec!["write".to_owned()],
            "permits" | "semaphore" => vec!["1".to_owned(), "1".to_owned()],
            _ => vec![],
        });
        words
    }

    /// The permits of a semaphore, and the waiters of a fair lock, are Redisson's.
    fn stays(key: &str) -> bool {
        ["x", "queue:{x}", "timeouts:{x}", "{x}:timeout", "t:!run"].contains(&key)
    }
}

/// One node of Redlock's.
struct Node;

impl Layout for Node {
    const SCRIPT: &'static str = NODE;

    fn keys(&self) -> Vec<&'static str> {
        vec!["t:!run", "t:{00}:x", "t:{00}wx"]
    }

    fn words(&self, what: &str, owner: &str, lease: u64, fence: u64) -> Vec<String> {
        let first = [what, "m", "run", "1000000", "1"].map(str::to_owned);
        let about = [owner, "p.1", "who"].map(str::to_owned);
        let rest = match what {
            "claim" => vec![lease.to_string(), "1".to_owned()],
            "beat" => vec![lease.to_string(), fence.to_string()],
            "confirm" => return [&first[..], &[owner.to_owned(), fence.to_string()]].concat(),
            "release" => return [&first[..], &[owner.to_owned()]].concat(),
            _ => return [&first[..], &[fence.to_string(), "why".to_owned()]].concat(),
        };
        [&first[..], &about[..], &rest].concat()
    }

    fn stays(key: &str) -> bool {
        key == "t:!run"
    }
}

struct World<L: Layout> {
    layout: L,
    server: Redis,
    connection: redis::Connection,
    digest: String,
    now: u64,
    step: u64,
    /// The holders, and until when at least; the fence.
    held: BTreeMap<String, (u64, u64)>,
    last: u64,
    done: Vec<String>,
}

impl<L: Layout> World<L> {
    fn start(layout: L) -> Self {
        let server = Redis::with_clock();
        let client = redis::Client::open(server.url()).expect("a URL");
        let mut connection = client.get_connection().expect("connected");
        let time = "local time = redis.call('TIME')";
        assert_eq!(L::SCRIPT.matches(time).count(), 1, "the script has changed");
        let rule = L::SCRIPT.replace(time, &format!("{time}\nSEEN = time"));
        let script = format!(
            "local SEEN\nlocal function rule()\n{rule}\nend\nlocal answer = rule()\nreturn {{ SEEN, answer }}"
        );
        let mut load = redis::cmd("SCRIPT");
        let digest = load.arg("LOAD").arg(script).query(&mut connection);
        Self {
            layout,
            server,
            connection,
            digest: digest.expect("the script compiles"),
            now: START,
            step: 0,
            held: BTreeMap::new(),
            last: 0,
            done: Vec::new(),
        }
    }

    fn context(&self) -> String {
        format!("held {:?} after\n  {}", self.held, self.done.join("\n  "))
    }

    /// The words of the answer, and when the script ran.
    fn call(&mut self, what: &str, owner: &str, lease: u64, fence: u64) -> (Vec<String>, u64) {
        let keys = self.layout.keys();
        let mut call = redis::cmd("EVALSHA");
        let _ = call.arg(&self.digest).arg(keys.len()).arg(keys);
        let _ = call.arg(self.layout.words(what, owner, lease, fence));
        self.server.stop_clock_at(self.now, self.step);
        let said: ([u64; 2], Vec<Value>) =
            call.query(&mut self.connection).expect("no script fails");
        let ([seconds, micros], answer) = said;
        let words = match &answer[1] {
            Value::Array(words) => words.iter().cloned(),
            other => panic!("{other:?}"),
        };
        let words: Vec<String> = words
            .map(|word| redis::from_redis_value(word).expect("a word"))
            .collect();
        self.now = seconds * 1_000_000 + micros;
        let text = format!("{} {what} {owner} {lease}: {words:?}", self.now - START);
        self.done.push(text);
        (words, self.now)
    }

    /// Claims, as a client does: the fence of a node is confirmed.
    fn claim(&mut self, owner: &str, lease: u64) -> bool {
        let (mut words, now) = self.call("claim", owner, lease, 0);
        if words[0] == "ok" {
            let fence = words[1].parse().expect("a fence");
            let (confirmed, _) = self.call("confirm", owner, lease, fence);
            if confirmed[0] != "held" {
                return false;
            }
            words = vec!["held".to_owned(), fence.to_string()];
        }
        if words[0] == "held" {
            self.holds(owner, now, lease, words[1].parse().expect("a fence"));
        }
        words[0] == "held"
    }

    fn holds(&mut self, owner: &str, now: u64, lease: u64, fence: u64) {
        // Redisson counts milliseconds.
        let until = now + lease / 1_000 * 1_000;
        let other = |(id, (until, _)): (&String, &(u64, u64))| id != owner && *until > now;
        assert!(
            !self.held.iter().any(other),
            "two holders: {}",
            self.context()
        );
        let known = self
            .held
            .get(owner)
            .is_some_and(|(_, known)| *known == fence);
        assert!(known || fence > self.last, "fences: {}", self.context());
        self.last = self.last.max(fence);
        let _ = self.held.insert(owner.to_owned(), (until, fence));
    }

    fn operate(&mut self, random: &mut SmallRng) {
        let owner = format!("{:032x}", random.random_range(0..OWNERS));
        let lease = [1_000, 3_000, 20_000][random.random_range(0..3)];
        let known = self.held.get(&owner).copied();
        match random.random_range(0..10) {
            0..5 => drop(self.claim(&owner, lease)),
            5..8 => {
                // A client sends no heartbeat for what it never held.
                let Some((until, fence)) = known else { return };
                let (words, now) = self.call("beat", &owner, lease, fence);
                let lost = until > now && words[0] != "held";
                assert!(!lost, "lost within its lease: {}", self.context());
                match words[0].as_str() {
                    "held" => self.holds(&owner, now, lease, fence),
                    _ => drop(self.held.remove(&owner)),
                }
            }
            8 => {
                let _ = self.call("release", &owner, lease, 0);
                let _ = self.held.remove(&owner);
            }
            _ => {
                let _ = self.call("evict", &owner, lease, 0);
                self.held.clear();
            }
        }
        self.keys_end();
    }

    fn keys_end(&mut self) {
        let keys: Vec<String> = redis::cmd("KEYS")
            .arg("*")
            .query(&mut self.connection)
            .expect("keys");
        for key in keys.iter().filter(|key| !L::stays(key)) {
            let mut ttl = redis::cmd("PTTL");
            let ttl: i64 = ttl.arg(key).query(&mut self.connection).expect("a time");
            assert_ne!(ttl, -1, "{key} has no end: {}", self.context());
        }
        // Every look of the server has moved its clock on.
        let time = redis::cmd("TIME").query(&mut self.connection);
        let [seconds, micros]: [u64; 2] = time.expect("a time");
        self.now = self.now.max(seconds * 1_000_000 + micros);
    }

    /// Time goes on a little, or to around the end of a lease.
    fn tick(&mut self, random: &mut SmallRng) {
        let ends: Vec<_> = self.held.values().map(|(until, _)| *until).collect();
        let around = [-3_000, -1_000, -1, 0, 1, 250, 1_000, 2_000, 3_000];
        let around = around[random.random_range(0..around.len())];
        self.now = match (random.random_range(0..3), ends.first()) {
            (0, Some(end)) => self.now.max(end.saturating_add_signed(around)),
            (1, _) => self.now + random.random_range(1..2_000),
            _ => self.now,
        };
    }

    fn sequence(&mut self, seed: u64) {
        let random = &mut SmallRng::seed_from_u64(seed);
        self.done = vec![format!("seed {seed}")];
        let _: () = redis::cmd("FLUSHALL")
            .query(&mut self.connection)
            .expect("empty");
        let mut marker = redis::cmd("SET");
        let marked = marker.arg("t:!run").arg("run 0").exec(&mut self.connection);
        marked.expect("marked");
        self.held.clear();
        // An idle name may be forgotten once the clock has passed its last fence.
        self.now = self.now.max(self.last) + 10_000_000;
        self.step = [0, 0, 50, 400][random.random_range(0..4)];
        for _ in 0..random.random_range(1..20) {
            self.tick(random);
            self.operate(random);
        }
        // Every lease has ended, of holders and of waiters.
        self.now += 60_000_000;
        self.step = 0;
        assert!(self.claim("new", 20_000), "stuck: {}", self.context());
    }

    fn run(mut self) {
        let first = rand::rng().next_u64();
        for number in 0..SEQUENCES {
            self.sequence(first.wrapping_add(number));
        }
    }
}

#[test]
fn redissons_lock_keeps_its_promises() {
    World::start(Redisson("lock")).run();
}

#[test]
fn redissons_fair_lock_keeps_its_promises() {
    World::start(Redisson("fair")).run();
}

#[test]
fn redissons_write_lock_keeps_its_promises() {
    World::start(Redisson("rw")).run();
}

#[test]
fn redissons_expiring_permit_keeps_its_promises() {
    World::start(Redisson("permits")).run();
}

#[test]
fn redissons_plain_permit_keeps_its_promises() {
    World::start(Redisson("semaphore")).run();
}

#[test]
fn a_node_of_redlock_keeps_its_promises() {
    World::start(Node).run();
}
