//! The rules about who is in line, one by one.

use leasehold_lab::check::Promise;
use leasehold_lab::history::{Call, Record, What};

use super::rules::{assert_broken, call, hold, record};

/// A try for one of so many that finds no room.
fn told_busy(t: u64, capacity: u32) -> Vec<Record> {
    let call = Call {
        name: "x".into(),
        weight: 1,
        capacity,
        waits: false,
        several: false,
        lease: 1_000,
        owner: 0,
    };
    vec![
        record(t, "b", 1, What::Call(call)),
        record(t + 1, "b", 1, What::Busy),
    ]
}

#[test]
fn busy_is_told_only_if_somebody_is_there() {
    let tries = |t| told_busy(t, 1);
    let held = || hold("a", 1, [10, 20, 30, 40], 1);
    assert_broken([held(), tries(25)].concat(), &[]);
    assert_broken([held(), tries(60)].concat(), &[Promise::ToldOutcome]);
    // Somebody stood in line, and failed later.
    let stood = vec![
        record(50, "c", 1, call(1, 1, 0)),
        record(70, "c", 1, What::Failed { perhaps: false }),
    ];
    assert_broken([held(), tries(60), stood].concat(), &[]);
}

#[test]
fn nobody_passes_who_is_about_to_get_several() {
    let tries = |t| told_busy(t, 3);
    let two = || {
        let mut two = hold("a", 1, [10, 20, 30, 40], 1);
        two[0] = record(10, "a", 1, call(2, 3, 0));
        two
    };
    assert_broken([two(), tries(15)].concat(), &[]);
    assert_broken([two(), tries(25)].concat(), &[Promise::ToldOutcome]);
}

#[test]
fn a_free_lock_keeps_somebody_waiting() {
    assert_broken(
        [
            hold("a", 1, [10, 20, 30, 40], 1),
            hold("b", 1, [11, 500, 510, 520], 2),
        ]
        .concat(),
        &[],
    );
    assert_broken(
        [
            hold("a", 1, [10, 20, 30, 40], 1),
            hold("b", 1, [11, 600, 610, 620], 2),
        ]
        .concat(),
        &[Promise::Progress],
    );
    // Never answered at all.
    let waits = vec![
        record(50, "b", 1, call(1, 1, 0)),
        record(
            900,
            "c",
            0,
            What::Fault {
                fault: "none".into(),
                on: true,
            },
        ),
    ];
    assert_broken(
        [hold("a", 1, [10, 20, 30, 40], 1), waits].concat(),
        &[Promise::Progress],
    );
    let left = record(
        50,
        "lab",
        0,
        What::Left {
            name: "x".into(),
            count: 1,
        },
    );
    assert_broken(vec![left], &[Promise::Progress]);
}

/// Who is cut off while it waits may hold without knowing, lose that, join again and fail.
#[test]
fn who_was_cut_off_in_line_may_have_held() {
    let with = |cut: Vec<Record>| {
        let waited = vec![
            record(35, "c", 1, call(1, 1, 0)),
            record(590, "c", 1, What::Failed { perhaps: false }),
        ];
        let others = [
            hold("a", 1, [10, 20, 30, 40], 1),
            hold("b", 1, [11, 600, 610, 620], 2),
        ];
        [others.concat(), waited, cut].concat()
    };
    let cut = vec![
        record(38, "lab", 0, What::Paused("c".into())),
        record(400, "lab", 0, What::Resumed("c".into())),
    ];
    assert_broken(with(cut), &[]);
    assert_broken(with(Vec::new()), &[Promise::Progress]);
}

/// Who asks for several names has the first while the next is asked for, and is told of neither before that is over.
#[test]
fn who_asks_for_several_may_have_held() {
    let with = |several| {
        let What::Call(call) = call(1, 1, 0) else {
            unreachable!("it is a call")
        };
        let asked = vec![
            record(35, "c", 1, What::Call(Call { several, ..call })),
            record(590, "c", 1, What::Failed { perhaps: true }),
        ];
        let others = [
            hold("a", 1, [10, 20, 30, 40], 1),
            hold("b", 1, [11, 600, 610, 620], 2),
        ];
        [others.concat(), asked].concat()
    };
    assert_broken(with(true), &[]);
    assert_broken(with(false), &[Promise::Progress]);
}

#[test]
fn overtaken_in_line() {
    let queued = |t| vec![record(t, "b", 1, What::Queued)];
    let three = |times| {
        [
            hold("a", 1, [10, 20, 30, 40], 1),
            hold("b", 1, [12, 80, 90, 95], 3),
            queued(15),
            hold("c", 1, times, 2),
        ]
        .concat()
    };
    assert_broken(three([14, 45, 60, 70]), &[]);
    assert_broken(three([16, 45, 60, 70]), &[Promise::Overtaking]);
}
