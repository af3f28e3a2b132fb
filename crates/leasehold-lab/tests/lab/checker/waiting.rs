//! The rules about requests in line, one by one.

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
fn busy_is_told_only_if_a_request_is_there() {
    let tries = |t| told_busy(t, 1);
    let held = || hold("a", 1, [10, 20, 30, 40], 1);
    assert_broken([held(), tries(25)].concat(), &[]);
    assert_broken([held(), tries(60)].concat(), &[Promise::ToldOutcome]);
    // A request stood in line, and failed later.
    let stood = vec![
        record(50, "c", 1, call(1, 1, 0)),
        record(70, "c", 1, What::Failed { perhaps: false }),
    ];
    assert_broken([held(), tries(60), stood].concat(), &[]);
}

/// Asks at 10 and holds from 20, valid until 45 unless renewed; then this.
fn held_and(then: &[(u64, What)]) -> Vec<Record> {
    let granted = What::Granted {
        fence: 1,
        until: 45,
    };
    let held = [(10, call(1, 1, 0)), (20, granted)];
    let all = held.iter().chain(then);
    all.map(|(t, what)| record(*t, "a", 1, what.clone()))
        .collect()
}

/// The last moment at which a try may be told that this is in its way.
fn assert_in_the_way_until(last: u64, of: &[Record]) {
    assert_broken([of, &told_busy(last, 1)].concat(), &[]);
    let late = [of, &told_busy(last + 1, 1)].concat();
    assert_broken(late, &[Promise::ToldOutcome]);
}

/// A beat under way when a claim is let go may be heard a third of the lease later, and the release may be lost.
#[test]
fn a_released_claim_may_have_a_beat_under_way() {
    let cancelled = [(10, call(1, 1, 0)), (40, What::Cancelled)];
    let cancelled = cancelled.map(|(t, what)| record(t, "a", 1, what));
    let (heard, kept) = (40 + 333, 1_000);
    assert_in_the_way_until(heard + kept, &cancelled);
    assert_in_the_way_until(heard + kept, &held_and(&[(40, What::Release)]));
    let told = |held| What::Released { held, asked: true };
    let lost = [(40, What::Lost), (41, What::Release), (42, told(false))];
    assert_in_the_way_until(heard + kept, &held_and(&lost));
    // No heartbeat is sent for a claim that the engine has taken back, nor for the dead.
    assert_in_the_way_until(42, &held_and(&[(40, What::Release), (42, told(true))]));
    let died = vec![record(40, "lab", 0, What::Crashed("a".into()))];
    assert_in_the_way_until(40 + kept, &[held_and(&[]), died].concat());
}

/// While the process stands still, so does its beat; without a word for a lease there is nothing left to keep.
#[test]
fn a_beat_under_way_may_stand_still() {
    let stopped = |from, to| {
        let stop = [
            record(from, "lab", 0, What::Paused("a".into())),
            record(to, "lab", 0, What::Resumed("a".into())),
        ];
        [held_and(&[(40, What::Release)]), stop.to_vec()].concat()
    };
    let kept = 1_000;
    assert_in_the_way_until(40 + 333 + 300 + kept, &stopped(100, 400));
    assert_in_the_way_until(40 + 333 + 60 + kept, &stopped(30, 100));
    assert_in_the_way_until(40 + 1_000 + kept, &stopped(100, 5_000));
    assert_in_the_way_until(40 + 333 + kept, &stopped(374, 500));
}

#[test]
fn no_request_passes_one_for_several_permits() {
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
fn a_free_lock_keeps_a_request_waiting() {
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

/// A request that is cut off while it waits may hold without knowing, lose that, join again and fail.
#[test]
fn a_request_cut_off_in_line_may_have_held() {
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

/// A request for several names has the first while the next is asked for, and is told of neither before that is over.
#[test]
fn a_request_for_several_may_have_held() {
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
