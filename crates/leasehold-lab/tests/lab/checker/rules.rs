//! Each promise broken once, in a history written by hand; and kept, beside it.

use leasehold_lab::check::{Bounds, Demands, Promise, Verdict, judge};
use leasehold_lab::history::{Call, Record, What, assemble};

pub(super) fn record(t: u64, who: &str, op: u64, what: What) -> Record {
    let who = who.to_owned();
    Record { t, who, op, what }
}

pub(super) fn call(weight: u32, capacity: u32, owner: u64) -> What {
    What::Call(Call {
        name: "x".into(),
        weight,
        capacity,
        waits: true,
        several: false,
        lease: 1_000,
        owner,
    })
}

fn granted(fence: u64, until: u64) -> What {
    What::Granted { fence, until }
}

/// One whole hold.
pub(super) fn hold(who: &str, op: u64, times: [u64; 4], fence: u64) -> Vec<Record> {
    let [t, got, release, free] = times;
    vec![
        record(t, who, op, call(1, 1, 0)),
        record(got, who, op, granted(fence, got + 1_000)),
        record(release, who, op, What::Release),
        record(
            free,
            who,
            op,
            What::Released {
                held: true,
                asked: false,
            },
        ),
    ]
}

fn verdict(records: Vec<Record>) -> Verdict {
    let bounds = Bounds {
        told: 100,
        stall: 500,
        ..Bounds::default()
    };
    judge(&assemble(records).unwrap(), &bounds, &Demands::default())
}

pub(super) fn assert_broken(records: Vec<Record>, promises: &[Promise]) {
    let verdict = verdict(records);
    assert_eq!(verdict.promises(), promises, "{verdict}");
}

#[test]
fn one_after_the_other_is_good() {
    assert_broken(
        [
            hold("a", 1, [10, 20, 30, 40], 1),
            hold("b", 1, [11, 40, 50, 60], 2),
        ]
        .concat(),
        &[],
    );
}

#[test]
fn two_at_a_time() {
    assert_broken(
        [
            hold("a", 1, [10, 20, 30, 40], 1),
            hold("b", 1, [11, 29, 50, 60], 2),
        ]
        .concat(),
        &[Promise::Exclusion],
    );
}

#[test]
fn a_fence_twice() {
    assert_broken(
        [
            hold("a", 1, [10, 20, 30, 40], 1),
            hold("b", 1, [50, 60, 70, 80], 1),
        ]
        .concat(),
        &[Promise::FenceOrder],
    );
}

#[test]
fn a_smaller_fence_later() {
    let records = [
        hold("a", 1, [10, 20, 30, 40], 2),
        hold("b", 1, [50, 60, 70, 80], 1),
    ]
    .concat();
    assert_eq!(
        verdict(records).promises(),
        [Promise::FenceOrder, Promise::FenceWindow]
    );
    // Asked for before the first was answered: only the windows tell.
    assert_broken(
        [
            hold("a", 1, [10, 20, 30, 40], 2),
            hold("b", 1, [15, 60, 70, 80], 1),
        ]
        .concat(),
        &[Promise::FenceWindow],
    );
}

#[test]
fn a_guard_ends_on_its_own_clock_while_its_process_stands_still() {
    let paused = vec![
        record(10, "a", 1, call(1, 1, 0)),
        record(20, "a", 1, granted(1, 100)),
        record(30, "lab", 0, What::Paused("a".into())),
    ];
    let records = [paused.clone(), hold("b", 1, [50, 120, 130, 140], 2)].concat();
    let good = verdict(records);
    assert!(good.is_good() && good.stats.faults_held == 1, "{good}");
    // It then says that it had held all the time.
    let lie = vec![
        record(200, "a", 1, What::Release),
        record(
            210,
            "a",
            1,
            What::Released {
                held: true,
                asked: false,
            },
        ),
    ];
    assert_broken(
        [paused, hold("b", 1, [50, 120, 130, 140], 2), lie].concat(),
        &[Promise::Exclusion],
    );
}

/// A lock that is taken away in the instant in which it is re-entered.
#[test]
fn re_entry_at_the_end_was_inside() {
    let taken = |t| {
        let (name, fence, since) = ("x".into(), 7, t);
        record(t, "lab", 0, What::Taken { name, fence, since })
    };
    let enters = |op, t| {
        vec![
            record(t, "a", op, call(1, 1, 5)),
            record(t, "a", op, granted(7, 900)),
        ]
    };
    let at = |again| [enters(1, 20), enters(2, again), vec![taken(20)]].concat();
    assert_broken(at(20), &[]);
    let late = [
        enters(1, 20),
        vec![record(30, "a", 1, What::Release)],
        enters(2, 31),
    ];
    assert_broken(late.concat(), &[Promise::FenceOrder]);
}

#[test]
fn re_entry_keeps_the_fence() {
    let enter = |op, t, fence| {
        vec![
            record(t, "a", op, call(1, 1, 7)),
            record(t + 1, "a", op, granted(fence, 1_000)),
        ]
    };
    let leave = |op, t| {
        vec![
            record(t, "a", op, What::Release),
            record(
                t + 1,
                "a",
                op,
                What::Released {
                    held: true,
                    asked: false,
                },
            ),
        ]
    };
    let good = [
        enter(1, 10, 5),
        enter(2, 20, 5),
        leave(2, 30),
        leave(1, 40),
        hold("b", 1, [11, 50, 60, 70], 6),
    ];
    assert_broken(good.concat(), &[]);
    let other = [enter(1, 10, 5), enter(2, 20, 6), leave(2, 30), leave(1, 40)].concat();
    assert_broken(other, &[Promise::Reentrancy]);
    // Released by the inner release already: the outer one still says that it holds.
    let early = [
        enter(1, 10, 5),
        enter(2, 20, 5),
        leave(2, 30),
        leave(1, 60),
        hold("b", 1, [11, 50, 70, 80], 6),
    ];
    assert_broken(early.concat(), &[Promise::Exclusion]);
}

#[test]
fn a_writer_among_readers() {
    let some = |who, t: u64, weight| {
        let what = [
            call(weight, u32::MAX, 0),
            granted(t, 1_000),
            What::Release,
            What::Released {
                held: true,
                asked: false,
            },
        ];
        let at = what.into_iter().zip([t, t + 1, t + 20, t + 21]);
        at.map(|(what, t)| record(t, who, 1, what))
            .collect::<Vec<_>>()
    };
    assert_broken([some("a", 10, 1), some("b", 15, 1)].concat(), &[]);
    assert_broken(
        [some("a", 10, 1), some("b", 15, u32::MAX)].concat(),
        &[Promise::ReadWrite],
    );
}

#[test]
fn more_permits_than_there_are() {
    let some = |who, t: u64, weight| {
        let what = [call(weight, 3, 0), granted(t, 1_000), What::Release];
        let at = what.into_iter().zip([t, t + 1, t + 20]);
        at.map(|(what, t)| record(t, who, 1, what))
            .collect::<Vec<_>>()
    };
    assert_broken([some("a", 10, 2), some("b", 15, 1)].concat(), &[]);
    let four = [some("a", 10, 2), some("b", 15, 2)];
    assert_broken(four.concat(), &[Promise::Capacity]);
}

#[test]
fn an_overlap_within_its_bound_and_beyond() {
    let both = [
        hold("a", 1, [10, 20, 50, 51], 1),
        hold("b", 1, [30, 40, 60, 61], 2),
    ];
    let history = assemble(both.concat()).unwrap();
    let verdict = |overlap| {
        let bounds = Bounds {
            overlap,
            ..Bounds::default()
        };
        judge(&history, &bounds, &Demands::default())
    };
    assert_eq!(verdict(0).promises(), [Promise::Exclusion]);
    assert_eq!(verdict(9).promises(), [Promise::BoundedOverlap]);
    assert_eq!(verdict(10).promises(), []);
}

fn effect(t: u64, by: &str, fence: u64, accepted: bool) -> Record {
    record(
        t,
        "gate",
        0,
        What::Effect {
            name: "x".into(),
            by: by.into(),
            fence,
            accepted,
        },
    )
}

#[test]
fn effects_in_fence_order() {
    assert_broken(
        vec![
            effect(1, "a", 1, true),
            effect(2, "b", 2, true),
            effect(3, "a", 1, false),
        ],
        &[],
    );
    assert_broken(
        vec![effect(1, "a", 2, true), effect(2, "b", 1, true)],
        &[Promise::EffectOrder],
    );
    assert_broken(
        vec![effect(1, "a", 2, true), effect(2, "b", 2, true)],
        &[Promise::EffectOrder],
    );
    let counted = record(
        9,
        "gate",
        0,
        What::Counted {
            name: "x".into(),
            count: 1,
        },
    );
    assert_broken(
        vec![effect(1, "a", 1, true), effect(2, "b", 2, true), counted],
        &[Promise::EffectOrder],
    );
}

#[test]
fn taken_away_and_told_or_not() {
    let taken = |lost: u64, held| {
        vec![
            record(10, "a", 1, call(1, 1, 0)),
            record(20, "a", 1, granted(1, 5_000)),
            record(
                32,
                "lab",
                0,
                What::Taken {
                    name: "x".into(),
                    fence: 1,
                    since: 30,
                },
            ),
            record(lost, "a", 1, What::Lost),
            record(lost + 1, "a", 1, What::Release),
            record(lost + 2, "a", 1, What::Released { held, asked: held }),
        ]
    };
    let next = || hold("b", 1, [12, 31, 60, 70], 300);
    assert_broken([taken(50, false), next()].concat(), &[]);
    assert_broken([taken(200, false), next()].concat(), &[Promise::ToldLoss]);
    assert_broken([taken(50, true), next()].concat(), &[Promise::ToldOutcome]);
}

#[test]
fn a_history_in_which_nothing_happens_proves_nothing() {
    let history = assemble(hold("a", 1, [10, 20, 30, 40], 1)).unwrap();
    for demands in [
        Demands {
            contended: 1,
            ..Demands::default()
        },
        Demands {
            faults_held: 1,
            ..Demands::default()
        },
        Demands {
            refused: 1,
            ..Demands::default()
        },
    ] {
        assert_eq!(
            judge(&history, &Bounds::default(), &demands).promises(),
            [Promise::NotVacuous]
        );
    }
}

#[test]
fn an_answer_without_a_call_is_no_history() {
    assert!(assemble(vec![record(1, "a", 1, What::Busy)]).is_err());
}
