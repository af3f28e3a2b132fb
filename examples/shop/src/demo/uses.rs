//! The category tree and the red packet, used by thirty clients at once.

use std::time::Duration;

use hyper::{Method, StatusCode};
use leasehold_testkit::poll::until;
use tokio::time::Instant;

use super::fleet::Fleet;
use super::load::at_once;

/// How often the database was read for the category tree.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    /// Requests, at two instances.
    pub requests: usize,
    /// Reads without a cache.
    pub uncached: u64,
    /// Reads with `cached`.
    pub cached: u64,
    /// Reads with `cached`, for a tree that is not there.
    pub nothing: u64,
    /// How long three loads stayed away from the first one, if each value lasts for [`TTL`].
    pub three_later: Duration,
}

/// What came of a red packet.
#[derive(Debug, Clone, Copy)]
pub struct Packet {
    /// Requests of one user at once.
    pub requests: usize,
    /// Of these, draws.
    pub draws: usize,
    /// What was in the packet, in cents.
    pub cents: u64,
    /// What all users drew.
    pub drawn: u64,
    /// Users.
    pub users: usize,
    /// Users for whom there was something.
    pub lucky: usize,
}

/// How long a value lasts whose reloads are counted.
pub const TTL: Duration = Duration::from_millis(500);

/// Shows the tree. The round makes the names of a run its own.
pub fn tree(fleet: &Fleet, requests: usize, round: u64) -> Tree {
    let reads = |path: &str, found: StatusCode| {
        let before = fleet.loads();
        let paths = vec![path.to_owned(); requests];
        for reply in at_once(fleet, &Method::GET, &paths) {
            assert_eq!(reply.status, found, "{path}: {reply}");
        }
        fleet.loads() - before
    };
    let ttl = 60_000 + round;
    let (found, absent) = (StatusCode::OK, StatusCode::NOT_FOUND);
    Tree {
        requests,
        uncached: reads("/categories/1", found),
        cached: reads(&format!("/categories/1?ttl={ttl}"), found),
        nothing: reads(&format!("/categories/404?ttl={ttl}"), absent),
        three_later: three_later(fleet),
    }
}

fn three_later(fleet: &Fleet) -> Duration {
    let paths = vec![format!("/categories/1?ttl={}", TTL.as_millis()); 30];
    let before = fleet.loads();
    let begin = Instant::now();
    until("the tree was loaded four times", || {
        let _ = at_once(fleet, &Method::GET, &paths);
        match fleet.loads() - before {
            loads if loads >= 4 => Ok(begin.elapsed()),
            loads => Err(format!("{loads} loads")),
        }
    })
}

/// Draws from a packet of ten parts.
pub fn packet(fleet: &Fleet, requests: usize, users: usize, packet: u64) -> Packet {
    let (cents, parts) = (10_000, 10);
    let path = format!("/packets/{packet}");
    let wrapped = fleet.send(Method::POST, &format!("{path}?cents={cents}&parts={parts}"));
    assert_eq!(wrapped.status, StatusCode::OK, "{wrapped}");
    // One user, as often as there are clients; then the others, twice each.
    let first = draw(fleet, &vec![format!("{path}/1"); requests]);
    let others = (2..=users).map(|user| format!("{path}/{user}"));
    let others: Vec<_> = others.flat_map(|path| [path.clone(), path]).collect();
    let others = draw(fleet, &others);
    assert_eq!(others.len(), users - 1, "each of the others draws once");
    let all = first.iter().chain(&others);
    Packet {
        requests,
        draws: first.len(),
        cents,
        drawn: all.clone().sum(),
        users,
        lucky: all.filter(|cents| **cents > 0).count(),
    }
}

/// What was drawn, without what had been drawn before.
fn draw(fleet: &Fleet, paths: &[String]) -> Vec<u64> {
    let replies = at_once(fleet, &Method::POST, paths);
    let drawn = replies.iter().map(|reply| reply.json());
    drawn
        .filter(|drawn| drawn["before"] == false)
        .map(|drawn| drawn["cents"].as_u64().expect("a number"))
        .collect()
}

impl Tree {
    /// Refuses more than one load per ttl for the whole fleet.
    ///
    /// # Panics
    /// If there were more.
    pub fn check(&self) {
        assert_eq!(self.uncached, self.requests as u64, "{self:?}");
        assert_eq!((self.cached, self.nothing), (1, 1), "{self:?}");
        // A value lasts for up to a tenth less, and is reloaded in the last tenth of that.
        let least = TTL.mul_f64(3.0 * 0.9 * 0.9);
        assert!(self.three_later >= least, "{self:?}: at least {least:?}");
    }

    /// What is written down of it.
    pub fn lines(&self) -> String {
        let Self {
            requests,
            uncached,
            cached,
            nothing,
            three_later,
        } = self;
        let each = three_later.as_secs_f64() / 3.0;
        format!(
            "| category tree, {requests} requests, no cache | {uncached} reads of the database |\n\
             | the same, `cached` | {cached} read |\n\
             | a tree that is not there, {requests} requests, `cached` | {nothing} read |\n\
             | a tree that lasts {:.1} s, under load | one read every {each:.2} s |\n",
            TTL.as_secs_f64()
        )
    }
}

impl Packet {
    /// Refuses a second draw of a user, and a cent more or less.
    ///
    /// # Panics
    /// If there was one.
    pub fn check(&self) {
        assert_eq!(self.draws, 1, "{self:?}");
        assert_eq!(self.drawn, self.cents, "{self:?}");
        assert_eq!(self.lucky, 10, "{self:?}");
    }

    /// What is written down of it.
    pub fn lines(&self) -> String {
        let Self {
            requests,
            draws,
            cents,
            drawn,
            users,
            lucky,
        } = self;
        format!(
            "| red packet, {requests} requests of one user at once, `once` | {draws} draw |\n\
             | a packet of {cents} cents in 10 parts, {users} users | {lucky} drew {drawn} cents |"
        )
    }
}
