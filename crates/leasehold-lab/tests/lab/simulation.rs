//! Five hundred seeds of each kind: the real session, turns and guards in simulated time, judged by the checker.

use std::time::Duration;

use leasehold_lab::simulation::{Locks, simulate};

/// A bug that shows in 2 % of the runs is missed by this many once in twenty thousand times.
const SEEDS: u64 = 500;

fn every_promise_is_kept(locks: Locks) {
    let (mut simulated, mut holds, mut contended, mut faults, mut losses, mut refused) =
        (Duration::ZERO, 0, 0, 0, 0, 0);
    for seed in 0..SEEDS {
        let (verdict, time) =
            simulate(locks, seed).unwrap_or_else(|error| panic!("{locks:?} seed {seed}: {error}"));
        assert!(verdict.is_good(), "{locks:?} seed {seed}:\n{verdict}");
        simulated += time;
        holds += verdict.stats.holds;
        contended += verdict.stats.contended;
        faults += verdict.stats.faults_held;
        losses += verdict.stats.losses;
        refused += verdict.stats.refused;
    }
    println!(
        "{locks:?}: {SEEDS} seeds, {holds} holds, {contended} contended, {faults} faults on a held lock, {losses} losses told, {refused} effects refused, {simulated:?} simulated"
    );
    let calm = locks == Locks::InOrder;
    assert!(
        holds > SEEDS * 10 && contended > SEEDS && (calm || faults.min(losses) > SEEDS / 2),
        "too little happened"
    );
}

#[test]
fn mutex() {
    every_promise_is_kept(Locks::Mutex);
}

#[test]
fn read_write() {
    every_promise_is_kept(Locks::ReadWrite);
}

#[test]
fn semaphore() {
    every_promise_is_kept(Locks::Semaphore);
}

#[test]
fn many_and_again() {
    every_promise_is_kept(Locks::ManyAndAgain);
}

#[test]
fn in_order() {
    every_promise_is_kept(Locks::InOrder);
}

/// Two names in one step: their renewal was not noted, nor that the first is held while the second is asked for. And what
/// is renewed while a lock is held twice was noted of the inner hold alone.
#[test]
fn seeds_that_were_judged_wrongly() {
    for seed in [5_295, 103_392, 150_905] {
        let (verdict, _) = simulate(Locks::ManyAndAgain, seed).unwrap();
        assert!(verdict.is_good(), "{verdict}");
    }
}

/// A wait was granted after its own lease had ended, joined again and was refused: it was told that nothing had happened
/// while the engine still had its first claim, and was then in its own way.
#[test]
fn a_seed_that_was_told_an_untruth() {
    let (verdict, _) = simulate(Locks::Semaphore, 3_502_376_943).unwrap();
    assert!(verdict.is_good(), "{verdict}");
}
