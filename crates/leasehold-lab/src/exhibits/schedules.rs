//! The schedules: the steps of the clients, in order. Broken locks and ours play the same.

use std::time::Duration;

use leasehold_testkit::poll::until;
use leasehold_testkit::proxy::{Fate, Proxy, Way};
use leasehold_testkit::servers::wall::Wall;

use super::stage::{LEASE, NAME, Scene, rest};
use crate::Outcome;
use crate::history::Record;

/// A works for longer than a lease while B waits.
pub(super) fn long_work(scene: &mut Scene<'_>) -> Outcome<()> {
    let (mut a, mut b) = (scene.client("A"), scene.client("B"));
    a.must_take()?;
    let both = b.takes(LEASE * 3 / 2)?;
    a.releases()?;
    if !both {
        b.must_take()?;
    }
    b.releases()
}

/// One piece is left. A and B look whether there is one, and sell it.
pub(super) fn sell(scene: &mut Scene<'_>) -> Outcome<()> {
    let (mut a, mut b) = (scene.client("A"), scene.client("B"));
    let _ = scene.servers.redis().cli("SET stock 1");
    let left = |scene: &mut Scene<'_>| scene.servers.redis().cli("--raw GET stock");
    a.must_take()?;
    let seen = left(scene);
    let both = b.takes(LEASE / 4)?;
    let mut seen_by_b = left(scene);
    if seen.trim() == "1" {
        let _ = scene.servers.redis().cli("DECR stock");
    }
    a.releases()?;
    if !both {
        b.must_take()?;
        seen_by_b = left(scene);
    }
    if seen_by_b.trim() == "1" {
        let _ = scene.servers.redis().cli("DECR stock");
    }
    b.releases()?;
    scene.remark = Some(format!("pieces left of one: {}", left(scene).trim()));
    Ok(())
}

/// As `long_work`; B's wall clock is ten seconds ahead.
pub(super) fn ahead(scene: &mut Scene<'_>) -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let wall = Wall::new(dir.path());
    wall.set(10);
    let mut a = scene.client("A");
    let mut b = scene.client_with("B", "B, ahead", &scene.url, &wall.environment());
    a.must_take()?;
    let both = b.takes(LEASE / 2)?;
    a.releases()?;
    if !both {
        b.must_take()?;
    }
    b.releases()
}

/// B has little patience, and A works on. Then C asks.
pub(super) fn little_patience(scene: &mut Scene<'_>) -> Outcome<()> {
    let (mut a, mut b, mut c) = (scene.client("A"), scene.client("B"), scene.client("C"));
    a.must_take()?;
    let second = b.takes(Duration::from_millis(100))?;
    let third = c.takes(Duration::ZERO)?;
    a.releases()?;
    for (client, holds) in [(&mut b, second), (&mut c, third)] {
        if holds {
            client.releases()?;
        }
    }
    Ok(())
}

/// A is killed while it holds. B waits for three leases.
pub(super) fn death(scene: &mut Scene<'_>) -> Outcome<()> {
    let (mut a, mut b) = (scene.client("A"), scene.client("B"));
    a.must_take()?;
    a.dies();
    if b.takes(LEASE * 3)? {
        b.releases()?;
    }
    Ok(())
}

/// A is killed before it knows that it holds.
pub(super) fn death_halfway(scene: &mut Scene<'_>) -> Outcome<()> {
    let (mut a, mut b) = (scene.client("A"), scene.client("B"));
    a.asks_and_stops(NAME);
    a.dies();
    if b.takes(LEASE * 3)? {
        b.releases()?;
    }
    Ok(())
}

/// A stands still past its lease. B takes the lock and works; A goes on, works and releases; C asks.
pub(super) fn overrun(scene: &mut Scene<'_>) -> Outcome<()> {
    let (mut a, mut b, mut c) = (scene.client("A"), scene.client("B"), scene.client("C"));
    a.must_take()?;
    a.stands_still(true);
    rest(LEASE);
    b.must_take()?;
    scene.effect(&b);
    a.stands_still(false);
    scene.effect(&a);
    a.releases()?;
    let third = c.takes(Duration::ZERO)?;
    b.releases()?;
    if third {
        c.releases()?;
    }
    Ok(())
}

/// A stands still in the middle of its release, past its lease.
pub(super) fn slow_release(scene: &mut Scene<'_>) -> Outcome<()> {
    let (mut a, mut b, mut c) = (scene.client("A"), scene.client("B"), scene.client("C"));
    a.must_take()?;
    a.releases_and_stops();
    a.stands_still(true);
    rest(LEASE);
    b.must_take()?;
    a.stands_still(false);
    a.goes_on();
    a.is_told()?;
    let third = c.takes(Duration::ZERO)?;
    b.releases()?;
    if third {
        c.releases()?;
    }
    Ok(())
}

/// A releases in good order. Half a lease later B asks, and waits for three.
pub(super) fn after_release(scene: &mut Scene<'_>) -> Outcome<()> {
    let (mut a, mut b) = (scene.client("A"), scene.client("B"));
    a.must_take()?;
    a.releases()?;
    rest(LEASE / 2);
    if b.takes(LEASE * 3)? {
        b.releases()?;
    }
    Ok(())
}

/// No other client wants the lock. The answer to A's request is lost on its way, and A asks again.
pub(super) fn lost_answer(scene: &mut Scene<'_>) -> Outcome<()> {
    scene.lease = Duration::from_secs(30);
    let proxy = Proxy::before(scene.servers.redis().port);
    let url = format!("redis://127.0.0.1:{}", proxy.port);
    let mut a = scene.client_with("A", "A", &url, &[]);
    proxy.after(Way::ToClient, 0, Fate::Reset);
    if a.takes(LEASE * 3)? {
        a.releases()?;
    }
    Ok(())
}

/// The server is killed and started again while A holds.
pub(super) fn restart(scene: &mut Scene<'_>) -> Outcome<()> {
    scene.lease = LEASE * 5;
    let mut a = scene.client("A");
    a.must_take()?;
    scene.servers.redis().restart();
    let mut b = scene.client("B");
    b.must_take()?;
    scene.effect(&b);
    scene.effect(&a);
    a.releases()?;
    b.releases()
}

/// The last holder is unknown to the replica that takes over.
pub(super) fn fences_over_failover(scene: &mut Scene<'_>) -> Outcome<()> {
    for who in ["A", "B", "C"] {
        let mut client = scene.client(who);
        client.must_take()?;
        client.releases()?;
        if who == "A" {
            scene.servers.cut_replication();
        }
        if who == "B" {
            scene.servers.fail_over();
        }
    }
    Ok(())
}

/// The replica does not hear of A, and takes over while A holds.
pub(super) fn hold_over_failover(scene: &mut Scene<'_>) -> Outcome<()> {
    scene.lease = LEASE * 5;
    let mut a = scene.client("A");
    scene.servers.cut_replication();
    let first = a.takes(LEASE)?;
    scene.servers.fail_over();
    let mut b = scene.client("B");
    b.must_take()?;
    if first {
        a.releases()?;
    }
    b.releases()
}

/// A is killed and started again at once. Both it and B ask.
pub(super) fn started_again(scene: &mut Scene<'_>) -> Outcome<()> {
    scene.lease = LEASE * 2;
    let (mut a, mut b) = (scene.client("A"), scene.client("B"));
    a.must_take()?;
    a.dies();
    let mut again = scene.client_with("A", "A again", &scene.url, &[]);
    again.must_take()?;
    let both = b.takes(LEASE * 3)?;
    again.releases()?;
    if !both {
        b.must_take()?;
    }
    b.releases()
}

/// A and B ask for different names at the same time, ten times.
pub(super) fn side_by_side(scene: &mut Scene<'_>) -> Outcome<()> {
    const COUNTER: &str =
        "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'";
    let deadlocks = |scene: &Scene<'_>| scene.servers.mariadb().sql(COUNTER).parse::<u64>();
    let before = deadlocks(scene)?;
    let (mut a, mut b) = (scene.client("A"), scene.client("B"));
    for round in 10..20 {
        a.asks_and_stops(&format!("stock:{round}42"));
        b.asks_and_stops(&format!("stock:{round}43"));
        a.goes_on();
        b.goes_on();
        let (first, second) = (a.hears()?, b.hears()?);
        for (client, holds) in [(&mut a, first), (&mut b, second)] {
            if holds {
                client.releases()?;
            }
        }
    }
    let count = deadlocks(scene)? - before;
    scene.remark = Some(format!("deadlocks that the server counted: {count}"));
    Ok(())
}

/// How many wait, each in a session of its own.
const CROWD: usize = 1_000;

/// A thousand wait for one lock, which passes on a few times.
pub(super) fn crowd(scene: &mut Scene<'_>) -> Outcome<()> {
    scene.lease = Duration::from_secs(80);
    let mut crowd = scene.client("crowd");
    assert_eq!(crowd.says(&format!("crowd {CROWD}")), "all wait");
    let before = settled(scene);
    assert_eq!(crowd.says("next"), "passed on");
    let requests = settled(scene) - before;
    scene.remark = Some(format!(
        "requests to the server for one hand-over: {requests}"
    ));
    if scene.lock == super::OURS && requests > CROWD as u64 / 4 {
        return Err(format!("one hand-over woke a crowd: {requests} requests").into());
    }
    for _ in 0..8 {
        assert_eq!(crowd.says("next"), "passed on");
    }
    let records = crowd.says("history");
    let records: Vec<Record> = serde_json::from_str(&records)?;
    for record in records {
        scene
            .log
            .of(record.who)
            .note_at(record.t, record.op, record.what);
    }
    Ok(())
}

/// How many requests the server has got, once no more come than the crowd's pings: one each in some ten seconds.
fn settled(scene: &Scene<'_>) -> u64 {
    let mut last = 0;
    until("the server is idle", || {
        let received = scene.servers.zookeeper().received();
        rest(Duration::from_millis(100));
        let idle = received.abs_diff(last) < CROWD as u64 / 50;
        last = received;
        if idle {
            Ok(received)
        } else {
            Err(format!("{received} requests"))
        }
    })
}
