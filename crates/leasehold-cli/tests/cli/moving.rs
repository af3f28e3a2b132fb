//! What `docs/recipes.md` says of fences, for a program that moves to another engine.

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

#[test]
fn the_numbers_of_a_server_need_the_floor() {
    let (place, server) = (Place::new(), ZooKeeper::start());
    let floor = fence(&place, &place.url());
    let first = fence(&place, &server.url());
    assert!(
        first < floor,
        "{first}: a resource that saw {floor} refuses it"
    );
    let second = fence(&place, &server.url());
    assert!(floor + first > floor && floor + second > floor + first);
}
