//! Faults of the database: its disk is full, its clock is set, it refuses a statement.

use super::lockers::{fence, locker};
use leasehold::engine::Clock;
use leasehold_testkit::disk::Disk;
use leasehold_testkit::poll::until;
use leasehold_testkit::servers::database::Setup;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use leasehold_testkit::skip;

/// On a full disk a claim is refused with the reason; held locks stay held, and all goes on once there is room.
/// `repair` is what its keeper does to a server that a full disk has stopped.
fn full(url: &str, disk: &dyn Fn(bool), repair: &mut dyn FnMut()) {
    let (mut holder, mut other) = (locker(url, 60_000), locker(url, 60_000));
    let first = fence(&holder.ask("lock held"));
    disk(true);
    let long = "x".repeat(400);
    let refused = (0..4_000).find_map(|n| {
        let answer = other.ask(&format!("try {n}:{long}"));
        (!answer.starts_with("held")).then_some(answer)
    });
    let refused = refused.expect("the disk is full").replace(&long, "");
    println!("{refused}");
    assert!(refused.starts_with("error unavailable"), "{refused}");
    disk(false);
    repair();
    assert_eq!(holder.ask("state held"), "Valid");
    let mut third = locker(url, 60_000);
    assert_eq!(third.ask("try held"), "busy", "what is held stays held");
    assert_eq!(holder.ask("release held"), "Released");
    assert!(fence(&third.ask("lock held")) > first);
    let _ = fence(&other.ask("lock another"));
}

fn fill(disk: &Disk, full: bool) {
    match full {
        true => disk.fill(),
        false => disk.free(),
    }
}

#[test]
fn sqlite_on_a_full_disk() {
    if skip::asked_for("full-disk") {
        return;
    }
    let home = tempfile::tempdir().expect("a directory");
    let disk = Disk::small(&home.path().join("disk"), 1024);
    let url = format!("sqlite:{}/locks.db", disk.path().display());
    full(&url, &|full| fill(&disk, full), &mut || {});
}

#[test]
fn mariadb_on_a_full_disk() {
    if skip::asked_for("full-disk") {
        return;
    }
    let server = MariaDb::set_up(&Setup {
        disk: Some(160),
        settings: &["--innodb-flush-log-at-trx-commit=2"],
        ..Setup::default()
    });
    let url = server.url();
    full(&url, &|full| fill(server.disk(), full), &mut || {});
}

/// The log is on the same disk, so the server itself stops: it comes back with all that it had said yes to.
#[test]
fn postgres_on_a_full_disk() {
    if skip::asked_for("full-disk") {
        return;
    }
    let server = Postgres::set_up(&Setup {
        disk: Some(100),
        ..Setup::default()
    });
    let url = server.url();
    let server = std::cell::RefCell::new(server);
    full(
        &url,
        &|full| fill(server.borrow().disk(), full),
        &mut || {
            let mut server = server.borrow_mut();
            if !server.is_running() {
                server.restart();
            }
        },
    );
}

/// A clock that is set back keeps holders and lets no other in; fences grow all the same.
fn set_back(url: &str, step: &dyn Fn(i64)) {
    let (mut holder, mut other) = (locker(url, 3_000), locker(url, 3_000));
    let first = fence(&holder.ask("lock back"));
    step(-3_600);
    other.say("lock back");
    let clock = Clock::boot();
    let end = clock.now() + 4_000_000;
    until("a lease and more has passed", || {
        (clock.now() >= end).then_some(()).ok_or_else(String::new)
    });
    assert_eq!(holder.ask("state back"), "Valid", "its heartbeats go on");
    assert_eq!(other.heard(), None, "no other gets in");
    assert_eq!(holder.ask("release back"), "Released");
    assert!(fence(&other.hear()) > first);
    assert_eq!(other.ask("release back"), "Released");
    step(0);
}

/// A clock that is set forward ends leases: the next one gets in at once, with a larger fence, and the old holder is
/// told by its next heartbeat.
fn set_forward(url: &str, step: &dyn Fn(i64)) {
    let (mut holder, mut other) = (locker(url, 3_000), locker(url, 3_000));
    let first = fence(&holder.ask("lock ahead"));
    step(3_600);
    assert!(fence(&other.ask("lock ahead")) > first);
    let told = holder.ask("lost ahead");
    assert!(told.starts_with("lost"), "{told}");
    assert_eq!(other.ask("state ahead"), "Valid");
    assert_eq!(other.ask("release ahead"), "Released");
    step(0);
}

const CLOCK: Setup<'_> = Setup {
    settings: &[],
    clock: true,
    tls: false,
    disk: None,
};

#[test]
fn postgres_with_a_clock_that_is_set() {
    let server = Postgres::set_up(&CLOCK);
    let now = || -> u64 {
        let now = server.sql("SELECT extract(epoch FROM clock_timestamp())::bigint");
        now.parse().expect("a number")
    };
    let before = now();
    server.step(3_600);
    assert!(now() >= before + 3_600, "its clock can be set");
    server.step(0);
    set_back(&server.url(), &|by| server.step(by));
    set_forward(&server.url(), &|by| server.step(by));
}

#[test]
fn mariadb_with_a_clock_that_is_set() {
    let server = MariaDb::set_up(&CLOCK);
    let now = || -> u64 {
        let now = server.sql("SELECT CAST(UNIX_TIMESTAMP(SYSDATE()) AS SIGNED)");
        now.parse().expect("a number")
    };
    let before = now();
    server.step(3_600);
    assert!(now() >= before + 3_600, "its clock can be set");
    server.step(0);
    set_back(&server.url(), &|by| server.step(by));
    set_forward(&server.url(), &|by| server.step(by));
}

/// An error in the middle of a packet of statements is an error of the packet, and nothing is half done.
fn in_the_middle(url: &str, fail: impl Fn(bool)) {
    let (mut holder, mut other) = (locker(url, 3_000), locker(url, 3_000));
    let first = fence(&holder.ask("lock middle"));
    fail(true);
    let told = other.ask("lock middle");
    assert!(told.contains("not now"), "{told}");
    fail(false);
    assert_eq!(holder.ask("release middle"), "Released");
    assert!(fence(&other.ask("lock middle")) > first);
    assert_eq!(other.ask("release middle"), "Released");
}

#[test]
fn a_packet_that_fails_in_the_middle_has_failed() {
    let server = MariaDb::start();
    in_the_middle(&server.url(), |fail| {
        let _ = server.sql(match fail {
            true => {
                "CREATE TRIGGER lab.no BEFORE INSERT ON lab.leasehold_claim FOR EACH ROW \
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not now'"
            }
            false => "DROP TRIGGER lab.no",
        });
    });
    let server = Postgres::start();
    in_the_middle(&server.url(), |fail| {
        let _ = server.sql(match fail {
            true => {
                "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE 'not now'; END $$; \
                 CREATE TRIGGER no BEFORE INSERT ON leasehold_claim FOR EACH ROW EXECUTE FUNCTION no()"
            }
            false => "DROP TRIGGER no ON leasehold_claim",
        });
    });
}
