//! Ten thousand small random programs over the whole API, each judged at every step.

use leasehold_lab::explore::campaign::explore_all;
use leasehold_lab::explore::{draw, explore, shrink};

const SEEDS: u64 = 10_000;

#[test]
fn every_promise_is_kept() {
    let sum = explore_all(0, SEEDS, false).unwrap();
    for (family, seeds) in &sum.broken {
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

#[test]
fn a_seed_is_one_program_and_one_run() {
    for seed in 0..100 {
        assert_eq!(draw::draw(seed), draw::draw(seed));
        let (one, again) = (explore(seed).unwrap(), explore(seed).unwrap());
        assert_eq!(one.granted, again.granted, "seed {seed}");
        assert_eq!(one.made.len(), again.made.len(), "seed {seed}");
    }
}
