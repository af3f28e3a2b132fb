//! Ten thousand small random programs over the whole API, each judged at every step.

use leasehold_lab::explore::campaign::explore_all;
use leasehold_lab::explore::{draw, explore, shrink};

const SEEDS: u64 = 10_000;

#[test]
fn every_promise_is_kept() {
    let sum = explore_all(0, SEEDS, false).unwrap();
    if let Some((family, seeds)) = sum.broken.iter().next() {
        match shrink::shrink(seeds[0]).unwrap() {
            Some(short) => panic!("{family}\n{short}"),
            None => panic!("{family}: seed {} broke it once, and not again", seeds[0]),
        }
    }
    println!(
        "{} programs, {} guards, {} of them lost, {} messages and tasks late or lost",
        sum.seeds, sum.granted, sum.lost, sum.made
    );
    assert!(
        sum.granted > SEEDS && sum.lost > SEEDS / 20 && sum.made > SEEDS * 5,
        "too little happened"
    );
}

/// A program is the same each time; so is its run, but for the order of what is ready at the same instant.
#[test]
fn a_seed_is_one_program_and_nearly_always_one_run() {
    let seeds = 0..200;
    let same = seeds.clone().filter(|seed| {
        assert_eq!(draw::draw(*seed), draw::draw(*seed));
        let (one, again) = (explore(*seed).unwrap(), explore(*seed).unwrap());
        (one.granted, one.lost) == (again.granted, again.lost)
    });
    let same = same.count();
    assert!(same > 190, "{same} of {} seeds ran alike", seeds.count());
}
