//! Changes that must not change a verdict, and changes that can only make it worse.

use leasehold_lab::check::{Bounds, Demands, Promise, Verdict, judge};
use leasehold_lab::history::{Answer, History, Hold, NEVER};
use leasehold_lab::random::Random;

use super::draw;

fn verdict(history: &History) -> Verdict {
    judge(
        history,
        &Bounds {
            stall: 3,
            ..Bounds::default()
        },
        &Demands::default(),
    )
}

fn each(check: impl Fn(&mut Random, History)) {
    for seed in 0..50_000 {
        let mut random = Random::of(seed, 1);
        let history = draw::history(&mut random);
        check(&mut random, history);
    }
}

fn overlapping(verdict: &Verdict) -> bool {
    [Promise::Exclusion, Promise::Capacity, Promise::ReadWrite]
        .iter()
        .any(|promise| verdict.count(*promise) > 0)
}

fn shift(hold: &mut Hold, by: u64) {
    for t in [
        &mut hold.call,
        &mut hold.queued,
        &mut hold.got,
        &mut hold.end,
        &mut hold.free,
    ] {
        if *t != NEVER {
            *t += by;
        }
    }
}

#[test]
fn other_names_for_clients_change_nothing() {
    each(|random, mut history| {
        let before = verdict(&history);
        history
            .holds
            .iter_mut()
            .for_each(|hold| hold.who = random.below(8) as u32);
        assert_eq!(before.counts, verdict(&history).counts);
    });
}

#[test]
fn later_is_the_same() {
    each(|random, mut history| {
        // Far from the start, so that the time before the first event is not cut off.
        history.holds.iter_mut().for_each(|hold| shift(hold, 1_000));
        let before = verdict(&history);
        let by = random.below(1 << 40);
        history.holds.iter_mut().for_each(|hold| shift(hold, by));
        assert_eq!(before.counts, verdict(&history).counts);
    });
}

#[test]
fn the_order_of_the_records_changes_nothing() {
    each(|random, mut history| {
        let before = verdict(&history);
        let by = random.below(history.holds.len() as u64) as usize;
        history.holds.rotate_left(by);
        assert_eq!(before.counts, verdict(&history).counts);
    });
}

#[test]
fn names_are_judged_one_by_one() {
    each(|random, mut history| {
        let mut other = draw::history(random);
        let apart: Vec<_> = [&history, &other].into_iter().map(verdict).collect();
        other.holds.iter_mut().for_each(|hold| hold.name = 1);
        history.names.push("y".into());
        history.holds.append(&mut other.holds);
        let together = verdict(&history);
        for promise in apart.iter().flat_map(Verdict::promises) {
            let sum: u64 = apart.iter().map(|verdict| verdict.count(promise)).sum();
            assert_eq!(together.count(promise), sum, "{promise}");
        }
    });
}

#[test]
fn holding_longer_or_once_more_heals_nothing() {
    each(|random, mut history| {
        let bad = overlapping(&verdict(&history));
        if random.one_in(2) {
            let index = random.below(history.holds.len() as u64) as usize;
            let hold = &mut history.holds[index];
            hold.end += random.below(4);
            hold.free = hold.free.max(hold.end);
        } else {
            let mut more = history.holds[0];
            (more.op, more.answer, more.fence) = (99, Answer::Granted, 0);
            history.holds.push(more);
        }
        assert!(
            !bad || overlapping(&verdict(&history)),
            "{:#?}",
            history.holds
        );
    });
}
