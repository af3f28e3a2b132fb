//! The shop as it would run: two processes behind nginx, thirty clients.

mod pages;

use std::time::Duration;

use leasehold_shop::demo::failures::{by_hand, leasehold};
use leasehold_shop::demo::fleet::{Fleet, Plan, Servers};
use leasehold_shop::demo::load::Load;
use leasehold_shop::demo::rows::{Named, OVERRUN, RIGHT, Row, WRONG};
use leasehold_shop::demo::uses::{packet, tree};

/// Enough to sell out in the right ways, and to sell too much in the wrong ones.
const SHORT: Load = Load {
    clients: 30,
    each: 4,
    stock: 100,
};

fn servers() -> Servers {
    Servers::start(env!("CARGO_BIN_EXE_leasehold-shop"))
}

fn measure(fleet: &Fleet, load: Load, way: Named, item: u64) -> Row {
    let row = Row::measure(fleet, load, way, way.word, item);
    println!("{}", row.line());
    row
}

const fn way(word: &'static str) -> Named {
    Named { word, name: word }
}

#[test]
fn a_way_without_a_common_lock_oversells_and_every_other_sells_what_there_is() {
    let servers = servers();
    let fleet = Fleet::start(&servers, &Plan::on(servers.redis.url()));
    for (way, item) in WRONG.into_iter().zip(1..) {
        let row = measure(&fleet, SHORT, way, item);
        assert!(row.oversold > 0, "{row:?}");
    }
    let by_hand = ["setnx-1", "setnx-2", "setnx-3", "setnx-4"].map(way);
    let right = by_hand.into_iter().chain(RIGHT).chain([way("waiting")]);
    for (way, item) in right.zip(10..) {
        let row = measure(&fleet, SHORT, way, item);
        assert_eq!((row.sold, row.oversold), (SHORT.stock, 0), "{row:?}");
    }
}

#[test]
fn locks_of_another_engine_guard_the_same_stock() {
    let servers = servers();
    let fleet = Fleet::start(&servers, &Plan::on(servers.mariadb.url()));
    for (way, item) in ["fail-fast", "waiting", "segments"]
        .map(way)
        .into_iter()
        .zip(1..)
    {
        let row = measure(&fleet, SHORT, way, item);
        assert_eq!((row.sold, row.oversold), (SHORT.stock, 0), "{row:?}");
    }
}

#[test]
fn work_that_outlasts_a_lock_made_by_hand_oversells() {
    let servers = servers();
    let mut plan = Plan::on(servers.redis.url());
    plan.think = Duration::from_millis(50);
    plan.expiry = Duration::from_millis(20);
    let fleet = Fleet::start(&servers, &plan);
    let each_one = Load { each: 1, ..SHORT };
    let row = measure(&fleet, each_one, OVERRUN, 1);
    assert!(row.oversold > 0, "{row:?}");
    let row = measure(&fleet, each_one, way("waiting"), 2);
    assert_eq!((row.sold, row.oversold), (30, 0), "{row:?}");
}

#[test]
fn the_fleet_loads_a_tree_once_and_a_user_draws_once() {
    let servers = servers();
    let fleet = Fleet::start(&servers, &Plan::on(servers.redis.url()));
    tree(&fleet, 60, 0).check();
    packet(&fleet, 30, 20, 1).check();
}

#[test]
fn each_stage_of_a_lock_made_by_hand_fails_in_its_own_way_and_leasehold_in_none() {
    let servers = servers();
    let mut plan = Plan::on(servers.redis.url());
    plan.lease = leasehold::LEASE;
    let mut fleet = Fleet::start(&servers, &plan);
    for failure in by_hand::all(&servers, &mut fleet, 1) {
        println!("{failure:?}");
    }
    for failure in leasehold::all(&servers, &mut fleet, 10) {
        println!("{failure:?}");
    }
}
