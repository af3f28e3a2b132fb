//! How faults are put into a history: the processes that are hit, and how long a request without an end is in the way.

use leasehold_lab::history::{Answer, Call, History, Hold, NEVER, Record, What, assemble};

fn record(t: u64, who: &str, op: u64, what: What) -> Record {
    let who = who.to_owned();
    Record { t, who, op, what }
}

fn call(t: u64, who: &str, op: u64) -> Record {
    let call = Call {
        name: "x".into(),
        weight: 1,
        capacity: 1,
        waits: true,
        several: false,
        lease: 1_000,
        owner: 0,
    };
    record(t, who, op, What::Call(call))
}

fn fault(t: u64, on: bool) -> Record {
    let fault = "server-kill".to_owned();
    record(t, "lab", 0, What::Fault { fault, on })
}

fn lab(t: u64, what: What) -> Record {
    record(t, "lab", 0, what)
}

/// How long a beat may be under way when a claim is let go: a third of the lease.
const BEAT: u64 = 333;

fn granted(t: u64, who: &str, op: u64, until: u64) -> Record {
    record(t, who, op, What::Granted { fence: op, until })
}

fn only(records: Vec<Record>) -> (Hold, History) {
    let history = assemble(records).unwrap();
    assert_eq!(history.holds.len(), 1, "{history:?}");
    (history.holds[0], history)
}

#[test]
fn acts_of_a_killed_process_after_the_stamp_are_no_hole() {
    let (hold, history) = only(vec![
        call(10, "w1.0/0", 1),
        granted(20, "w1.0/0", 1, 1_020),
        lab(30, What::Crashed("w1.0".into())),
        record(31, "w1.0/0", 1, What::Until(1_031)),
        call(32, "w1.0/0", 2),
    ]);
    assert_eq!((hold.end, hold.hit, history.faults_held), (30, true, 1));
}

#[test]
fn a_cut_hits_the_worker_there_and_no_other() {
    let cut = |who: &str| {
        let (hold, history) = only(vec![
            lab(5, What::Cut("w1".into())),
            call(10, who, 1),
            record(20, who, 1, What::Cancelled),
            lab(3_000, What::Mended("w1".into())),
        ]);
        assert!(history.faults.is_empty(), "others are not hit");
        (hold.hit, hold.free)
    };
    // Its requests may arrive when the cut is over, and stay for a lease.
    assert_eq!(cut("w1.3/2"), (true, 4_000));
    assert_eq!(cut("w10.0/0"), (false, 20 + BEAT + 1_000));
}

#[test]
fn a_fault_of_the_servers_outlasts_answers_that_never_came() {
    let ghost = vec![
        call(10, "w1", 1),
        fault(15, true),
        record(20, "w1", 1, What::Failed { perhaps: true }),
        fault(3_000, false),
    ];
    let (hold, history) = only(ghost);
    assert_eq!((hold.answer, hold.free), (Answer::Unknown, 4_000));
    assert_eq!(history.faults, [(15, 3_000)]);
    let sure = vec![
        call(10, "w1", 1),
        fault(15, true),
        record(20, "w1", 1, What::Failed { perhaps: false }),
        fault(3_000, false),
    ];
    assert_eq!(only(sure).0.free, 20);
}

#[test]
fn a_fault_of_the_servers_may_cost_the_place_in_line() {
    let waits = |first: Record, second: Record| {
        let (hold, _) = only(vec![
            call(10, "w1", 1),
            first,
            second,
            fault(40, false),
            granted(50, "w1", 1, 1_050),
        ]);
        hold.queued
    };
    let queued = |t| record(t, "w1", 1, What::Queued);
    assert_eq!(waits(queued(20), fault(30, true)), NEVER);
    assert_eq!(waits(fault(20, true), queued(30)), NEVER);
}

#[test]
fn a_lost_claim_may_be_in_the_way_for_a_beat_and_a_lease() {
    let told = |held| {
        let released = What::Released { held, asked: false };
        only(vec![
            call(10, "w1", 1),
            granted(20, "w1", 1, 1_020),
            record(30, "w1", 1, What::Release),
            record(40, "w1", 1, released),
            lab(5_000, What::Cut("w2".into())),
        ])
        .0
        .free
    };
    assert_eq!(told(true), 40);
    assert_eq!(told(false), 30 + BEAT + 1_000);
}
