//! What `docs/recipes.md` says of fences, for a program that moves to another engine.

use leasehold::{Fence, FenceGate};
use leasehold_testkit::servers::etcd::Etcd;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use leasehold_testkit::servers::redis::Redis;
use leasehold_testkit::servers::zookeeper::ZooKeeper;

use crate::common::Place;

/// The fence of one run.
fn fence(place: &Place, url: &str) -> u64 {
    let args = [
        "--url",
        url,
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "echo $LEASEHOLD_FENCE",
    ];
    let answer = place.leasehold(&args);
    assert_eq!(answer.code, 0, "{url}: {answer:?}");
    answer.out.trim().parse().unwrap()
}

#[test]
fn fences_grow_from_engine_to_engine_where_they_are_a_clock() {
    let (redis, postgres, mariadb) = (Redis::start(), Postgres::start(), MariaDb::start());
    let place = Place::new();
    let sqlite = format!("sqlite:{}", place.path("locks.db").display());
    let there = [
        place.url(),
        redis.url(),
        postgres.url(),
        mariadb.url(),
        sqlite,
    ];
    let back = there.iter().rev();
    let mut last = 0;
    for url in there.iter().chain(back) {
        let now = fence(&place, url);
        assert!(now > last, "{url}: {now} after {last}");
        last = now;
    }
    let clock = jiff::Timestamp::now().as_microsecond();
    let apart = i64::try_from(last).unwrap().abs_diff(clock);
    assert!(apart < 60_000_000, "{last} is no time, it is {clock}");
}

/// A resource that has seen the fences of Redis refuses the smaller ones of the next engine, and takes those above the
/// floor; of a program that still has the old lock it takes nothing more.
#[test]
fn the_numbers_of_a_server_need_the_floor() {
    let (place, redis) = (Place::new(), Redis::start());
    let (zookeeper, etcd) = (ZooKeeper::start(), Etcd::start());
    for url in [zookeeper.url(), etcd.url()] {
        let resource = FenceGate::new();
        let seen = Fence::new(fence(&place, &redis.url()));
        assert_eq!(resource.admit(seen), Ok(()));
        let bare = Fence::new(fence(&place, &url));
        assert!(resource.admit(bare).is_err(), "{url}: {bare} after {seen}");
        let moved = format!("{url}?fence_floor={seen}");
        let mut last = seen;
        for _ in 0..2 {
            let now = Fence::new(fence(&place, &moved));
            assert!(now > last, "{url}: {now} after {last}");
            assert_eq!(resource.admit(now), Ok(()), "{url}");
            last = now;
        }
        assert!(resource.admit(seen).is_err(), "{url}: {seen} after {last}");
    }
}
