//! The broken locks, each as people write it, and the schedule that breaks it.

use std::time::Duration;

use super::redis::{Redis, Server};
use super::stage::{LEASE, Stage, rest};
use crate::Outcome;

const KEY: &str = "lock:stock:42";

fn px() -> String {
    LEASE.as_millis().to_string()
}

fn set_nx_px(redis: &mut Redis, value: &str) -> Outcome<bool> {
    Ok(redis.ask(&["SET", KEY, value, "NX", "PX", &px()])? == "OK")
}

/// Asks every few milliseconds for a while.
fn poll(mut ask: impl FnMut() -> Outcome<bool>, patience: Duration) -> Outcome<bool> {
    for _ in 0..patience.as_millis() / 10 {
        if ask()? {
            return Ok(true);
        }
        rest(Duration::from_millis(10));
    }
    Ok(false)
}

/// Two instances of a service, each with a mutex of its own, sell from one stock.
pub(super) fn in_process(stage: &Stage) -> Outcome<()> {
    let (one, two) = (std::sync::Mutex::new(()), std::sync::Mutex::new(()));
    let a = stage.asks("A");
    let first = one.lock().map_err(|_| "poisoned")?;
    a.holds(0);
    let b = stage.asks("B");
    let second = two.lock().map_err(|_| "poisoned")?;
    b.holds(0);
    rest(Duration::from_millis(20));
    a.releases();
    drop(first);
    a.was_told(true);
    b.releases();
    drop(second);
    b.was_told(true);
    Ok(())
}

/// `SETNX`, and the holder dies.
pub(super) fn setnx(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut redis, a) = (server.connect()?, stage.asks("A"));
    assert_eq!(redis.ask(&["SETNX", KEY, "1"])?, "1");
    a.holds(0);
    rest(Duration::from_millis(20));
    stage.dies("A");
    drop(redis);
    let (mut redis, b) = (server.connect()?, stage.asks("B"));
    let got = poll(|| Ok(redis.ask(&["SETNX", KEY, "1"])? == "1"), LEASE * 6)?;
    if got {
        b.holds(0)
    } else {
        b.gives_up()
    }
    Ok(())
}

/// `SETNX`, then `EXPIRE`: the holder dies between the two.
pub(super) fn setnx_expire(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut redis, _a) = (server.connect()?, stage.asks("A"));
    assert_eq!(redis.ask(&["SETNX", KEY, "1"])?, "1");
    stage.dies("A");
    drop(redis);
    let (mut redis, b) = (server.connect()?, stage.asks("B"));
    let take = || {
        let got = redis.ask(&["SETNX", KEY, "1"])? == "1";
        if got {
            let _ = redis.ask(&["PEXPIRE", KEY, &px()])?;
        }
        Ok(got)
    };
    if poll(take, LEASE * 6)? {
        b.holds(0)
    } else {
        b.gives_up()
    }
    Ok(())
}

/// `SET NX PX`, and a plain `DEL` by a holder whose lease is over.
pub(super) fn plain_del(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut ra, mut rb, mut rc) = (server.connect()?, server.connect()?, server.connect()?);
    let a = stage.asks("A");
    assert!(set_nx_px(&mut ra, "1")?);
    a.holds_for(0, LEASE / 2);
    rest(LEASE + LEASE / 3);
    let b = stage.asks("B");
    assert!(set_nx_px(&mut rb, "1")?);
    b.holds_for(0, LEASE / 2);
    a.releases();
    let _ = ra.ask(&["DEL", KEY])?;
    a.was_told(false);
    let c = stage.asks("C");
    assert!(set_nx_px(&mut rc, "1")?);
    c.holds_for(0, LEASE / 2);
    rest(LEASE / 3);
    b.releases();
    c.releases();
    Ok(())
}

/// `GET`, compare, `DEL`: the lease ends between the two.
pub(super) fn get_del(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut ra, mut rb, mut rc) = (server.connect()?, server.connect()?, server.connect()?);
    let a = stage.asks("A");
    assert!(set_nx_px(&mut ra, "a-1")?);
    a.holds_for(0, LEASE / 2);
    a.releases();
    let mine = ra.ask(&["GET", KEY])? == "a-1";
    rest(LEASE + LEASE / 3);
    let b = stage.asks("B");
    assert!(set_nx_px(&mut rb, "b-1")?);
    b.holds_for(0, LEASE / 2);
    if mine {
        let _ = ra.ask(&["DEL", KEY])?;
    }
    a.was_told(true);
    let c = stage.asks("C");
    assert!(set_nx_px(&mut rc, "c-1")?);
    c.holds_for(0, LEASE / 2);
    rest(LEASE / 3);
    b.releases();
    c.releases();
    Ok(())
}

/// The end of the lease in the value, by the clock of whoever writes it; taken over with `GETSET` once it is past.
pub(super) fn getset(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let clock = leasehold::engine::Clock::boot();
    // B's clock is a second ahead.
    let now = |ahead: u64| clock.wall() / 1_000 + ahead;
    let (mut ra, mut rb) = (server.connect()?, server.connect()?);
    let a = stage.asks("A");
    assert_eq!(ra.ask(&["SETNX", KEY, &(now(0) + 500).to_string()])?, "1");
    a.holds_for(0, Duration::from_millis(400));
    let b = stage.asks("B");
    let end: u64 = rb.ask(&["GET", KEY])?.parse()?;
    if end < now(1_000) {
        let old: u64 = rb
            .ask(&["GETSET", KEY, &(now(1_000) + 500).to_string()])?
            .parse()?;
        if old == end {
            b.holds_for(0, Duration::from_millis(400));
        }
    }
    rest(Duration::from_millis(30));
    a.releases();
    b.releases();
    Ok(())
}

/// A lease of fixed length, and work that takes longer.
pub(super) fn fixed_lease(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut ra, mut rb) = (server.connect()?, server.connect()?);
    let a = stage.asks("A");
    assert!(set_nx_px(&mut ra, "a")?);
    a.holds(0);
    let b = stage.asks("B");
    if poll(|| set_nx_px(&mut rb, "b"), LEASE * 3)? {
        b.holds_for(0, LEASE / 2);
    }
    rest(LEASE / 4);
    a.releases();
    b.releases();
    Ok(())
}

/// An acquire that waits until its time is over and returns its id all the same.
pub(super) fn timed_out(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut ra, mut rb) = (server.connect()?, server.connect()?);
    let acquire = |redis: &mut Redis, id: &'static str| -> Outcome<&'static str> {
        let _ = poll(|| set_nx_px(redis, id), Duration::from_millis(40))?;
        Ok(id)
    };
    let a = stage.asks("A");
    assert!(!acquire(&mut ra, "a")?.is_empty());
    a.holds_for(0, LEASE * 4 / 5);
    let b = stage.asks("B");
    if !acquire(&mut rb, "b")?.is_empty() {
        b.holds_for(0, LEASE / 2);
    }
    rest(Duration::from_millis(20));
    a.releases();
    b.releases();
    Ok(())
}

const COMPARE_AND_DEL: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// A release that takes any answer for a yes.
pub(super) fn misread(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut ra, mut rb) = (server.connect()?, server.connect()?);
    let a = stage.asks("A");
    assert!(set_nx_px(&mut ra, "a")?);
    a.holds_for(0, LEASE / 2);
    rest(LEASE + LEASE / 3);
    let b = stage.asks("B");
    assert!(set_nx_px(&mut rb, "b")?);
    b.holds_for(0, LEASE / 2);
    rest(Duration::from_millis(5));
    a.releases();
    let answer = ra.ask(&["EVAL", COMPARE_AND_DEL, "1", KEY, "a"])?;
    a.was_told(!answer.is_empty());
    b.releases();
    Ok(())
}

/// A watchdog that renews by writing the key, once more after the release.
pub(super) fn watchdog(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut ra, mut dog, mut rb) = (server.connect()?, server.connect()?, server.connect()?);
    let a = stage.asks("A");
    assert!(set_nx_px(&mut ra, "a")?);
    a.holds_for(0, LEASE / 2);
    a.releases();
    let _ = ra.ask(&["EVAL", COMPARE_AND_DEL, "1", KEY, "a"])?;
    a.was_told(true);
    let b = stage.asks("B");
    let take = || {
        // The dog still wakes every third of the lease.
        let _ = dog.ask(&["SET", KEY, "a", "PX", &px()])?;
        set_nx_px(&mut rb, "b")
    };
    if poll(take, LEASE * 6)? {
        b.holds(0)
    } else {
        b.gives_up()
    }
    Ok(())
}

/// A `finally` block that deletes the key also when the lock was not got.
pub(super) fn finally_del(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut ra, mut rb, mut rc) = (server.connect()?, server.connect()?, server.connect()?);
    let a = stage.asks("A");
    assert!(set_nx_px(&mut ra, "a")?);
    a.holds_for(0, LEASE / 2);
    let b = stage.asks("B");
    assert!(!set_nx_px(&mut rb, "b")?);
    b.gives_up();
    let _ = rb.ask(&["DEL", KEY])?;
    let c = stage.asks("C");
    assert!(set_nx_px(&mut rc, "c")?);
    c.holds_for(0, LEASE / 2);
    rest(LEASE / 4);
    a.releases();
    c.releases();
    Ok(())
}

/// A server without persistence is started again while the lock is held.
pub(super) fn amnesia(stage: &Stage) -> Outcome<()> {
    let mut server = Server::start()?;
    let long = |redis: &mut Redis, value: &str| {
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
            redis.ask(&["SET", KEY, value, "NX", "PX", "30000"])? == "OK",
        )
    };
    let a = stage.asks("A");
    assert!(long(&mut server.connect()?, "a")?);
    a.holds_for(0, Duration::from_secs(20));
    server.restart()?;
    let b = stage.asks("B");
    assert!(long(&mut server.connect()?, "b")?);
    b.holds_for(0, Duration::from_secs(20));
    rest(Duration::from_millis(20));
    a.releases();
    b.releases();
    Ok(())
}

/// Fences from a counter in the same server, which forgets it.
pub(super) fn counter(stage: &Stage) -> Outcome<()> {
    let mut server = Server::start()?;
    for who in ["A", "B", "C"] {
        if who == "C" {
            server.restart()?;
        }
        let mut redis = server.connect()?;
        let asks = stage.asks(who);
        assert!(set_nx_px(&mut redis, who)?);
        let fence = redis.ask(&["INCR", "fence:stock:42"])?.parse()?;
        asks.holds_for(fence, LEASE / 2);
        asks.releases();
        let _ = redis.ask(&["EVAL", COMPARE_AND_DEL, "1", KEY, who])?;
        asks.was_told(true);
        rest(Duration::from_millis(2));
    }
    Ok(())
}

/// A holder that stands still past its lease writes when it goes on; nothing checks.
pub(super) fn no_fence(stage: &Stage) -> Outcome<()> {
    let server = Server::start()?;
    let (mut ra, mut rb) = (server.connect()?, server.connect()?);
    let a = stage.asks("A");
    assert!(set_nx_px(&mut ra, "a")?);
    a.holds_for(1, LEASE / 2);
    // It has looked at its lease; now it stands still.
    rest(LEASE + LEASE / 3);
    let b = stage.asks("B");
    assert!(set_nx_px(&mut rb, "b")?);
    b.holds_for(2, LEASE / 2);
    stage.effect("B", 2, true);
    stage.effect("A", 1, true);
    b.releases();
    Ok(())
}
