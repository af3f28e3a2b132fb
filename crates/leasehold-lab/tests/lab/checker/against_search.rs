//! A million small histories, judged twice.

use leasehold_lab::check::{Bounds, Demands, Promise, judge};
use leasehold_lab::history::{Answer, NEVER};
use leasehold_lab::random::Random;

use super::{draw, naive, search};

const HISTORIES: u64 = 1_000_000;

const ORDER: [Promise; 5] = [
    Promise::Exclusion,
    Promise::Capacity,
    Promise::ReadWrite,
    Promise::FenceOrder,
    Promise::FenceWindow,
];

/// How often each kind of history came, so that nothing is proved of one that never does.
#[derive(Debug, Default)]
struct Seen {
    good: u64,
    bad: u64,
    bad_by_window_only: u64,
    unknown: u64,
    busy: u64,
    busy_wrong: u64,
    /// Told busy, in no order explainable, and yet possible for each request by itself.
    busy_undecided: u64,
}

#[test]
fn a_search_through_every_order_agrees() {
    let mut seen = Seen::default();
    for seed in 0..HISTORIES {
        compare(seed, &mut seen);
    }
    println!("{seen:?}");
    let rare = [
        seen.good,
        seen.bad,
        seen.unknown,
        seen.busy,
        seen.busy_wrong,
    ]
    .into_iter()
    .min();
    assert!(rare > Some(HISTORIES / 50), "{seen:?}");
    assert!(seen.bad_by_window_only > HISTORIES / 1_000, "{seen:?}");
}

fn compare(seed: u64, seen: &mut Seen) {
    let history = draw::history(&mut Random::new(seed));
    let verdict = judge(&history, &Bounds::default(), &Demands::default());
    let holds = &history.holds;
    let says_good = ORDER.iter().all(|promise| verdict.count(*promise) == 0);
    let is_good = search::explains(holds, false) && !naive::same_fence(holds);
    assert_eq!(says_good, is_good, "seed {seed}: {verdict}\n{holds:#?}");

    let busy_wrong = verdict.count(Promise::ToldOutcome);
    assert_eq!(
        busy_wrong,
        naive::busy_for_nothing(holds),
        "seed {seed}: {verdict}\n{holds:#?}"
    );
    let has = |answer| holds.iter().any(|hold| hold.answer == answer);
    if has(Answer::Busy) && holds.iter().all(|hold| !hold.waits) {
        let explained = search::explains(holds, true) && !naive::same_fence(holds);
        assert!(
            !explained || (says_good && busy_wrong == 0),
            "seed {seed}: a false alarm: {verdict}\n{holds:#?}"
        );
        seen.busy_undecided += u64::from(!explained && says_good && busy_wrong == 0);
    }
    seen.good += u64::from(is_good);
    seen.bad += u64::from(!is_good);
    seen.bad_by_window_only += u64::from(verdict.promises() == [Promise::FenceWindow]);
    seen.unknown += u64::from(has(Answer::Unknown));
    seen.busy += u64::from(has(Answer::Busy));
    seen.busy_wrong += u64::from(busy_wrong > 0);
}

#[test]
fn overtaking_and_stalls_agree_with_a_look_at_every_instant() {
    let (mut overtaken, mut stalled) = (0, 0);
    for seed in 0..HISTORIES / 10 {
        let mut random = Random::new(seed);
        let mut history = draw::history(&mut random);
        for hold in &mut history.holds {
            hold.queued = if random.one_in(3) {
                NEVER
            } else {
                hold.call + random.below(hold.got - hold.call + 1)
            };
            hold.free = hold.free.min(hold.end + 2);
        }
        let bounds = Bounds {
            overtakes: random.below(2),
            stall: random.below(3),
            ..Bounds::default()
        };
        let verdict = judge(&history, &bounds, &Demands::default());
        let naive = (
            naive::overtaken(&history.holds, &bounds),
            naive::stalled(&history.holds, &bounds),
        );
        let says = (
            verdict.count(Promise::Overtaking),
            verdict.count(Promise::Progress),
        );
        assert_eq!(
            says, naive,
            "seed {seed} {bounds:?}: {verdict}\n{:#?}",
            history.holds
        );
        overtaken += u64::from(naive.0 > 0);
        stalled += u64::from(naive.1 > 0);
    }
    assert!(
        overtaken.min(stalled) > HISTORIES / 1_000,
        "{overtaken} overtaken, {stalled} stalled"
    );
}

#[test]
fn bounded_overlap_agrees_with_a_look_at_every_pair() {
    let mut broken = 0;
    for seed in 0..HISTORIES / 10 {
        let mut random = Random::new(seed);
        let mut history = draw::history(&mut random);
        history.holds.iter_mut().for_each(|hold| {
            (hold.weight, hold.capacity) = (1, 1);
            hold.end = hold.got + random.below(8);
        });
        let bounds = Bounds {
            overlap: random.within(1, 4),
            ..Bounds::default()
        };
        let verdict = judge(&history, &bounds, &Demands::default());
        let naive = naive::overlaps(&history.holds, bounds.overlap);
        assert_eq!(
            verdict.count(Promise::BoundedOverlap) > 0,
            naive,
            "seed {seed}: {verdict}\n{:#?}",
            history.holds
        );
        broken += u64::from(naive);
    }
    assert!(broken > HISTORIES / 200, "{broken}");
}
