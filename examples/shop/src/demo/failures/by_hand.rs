//! The five stages of a lock made by hand, each with the fault that the next one mends.

use hyper::StatusCode;

use super::{Failure, Stage};
use crate::demo::fleet::{Fleet, Servers};

/// Brings about all five. The numbers of the items begin there.
pub fn all(servers: &Servers, fleet: &mut Fleet, item: u64) -> Vec<Failure> {
    vec![
        dead(Stage::new(servers, fleet, item, "setnx-1"), "held"),
        dead(Stage::new(servers, fleet, item + 1, "setnx-2"), "taken"),
        deleted(&Stage::new(servers, fleet, item + 2, "setnx-3"), "held"),
        deleted(&Stage::new(servers, fleet, item + 3, "setnx-4"), "looked"),
        two_holders(&Stage::new(servers, fleet, item + 4, "setnx-5")),
    ]
}

/// The holder's process dies before it deletes the lock, or before it gives it an expiry.
fn dead(mut stage: Stage<'_>, at: &str) -> Failure {
    stage.crash(at);
    let ends = stage.ends();
    assert_eq!(ends, "-1", "the lock has no expiry");
    for instance in [0, 1] {
        assert_eq!(stage.buy(instance), StatusCode::CONFLICT);
    }
    let (way, done) = match at {
        "held" => ("1: `SETNX`, `DEL`", "the process dies between the two"),
        _ => (
            "2: `SETNX`, `EXPIRE`, `DEL`",
            "the process dies between the first two",
        ),
    };
    let seen = format!("the lock stays for ever (`PTTL` {ends}): every buyer is told \"busy\"");
    Failure { way, done, seen }
}

/// A takes so long that its lock ends and B has it. Then A deletes the lock of B, and C comes in beside B.
fn deleted(stage: &Stage<'_>, at: &str) -> Failure {
    let a = stage.pause(0, at, "a");
    stage.expire();
    let b = stage.pause(1, "held", "b");
    assert_eq!(stage.buy(0), StatusCode::CONFLICT, "B holds the lock");
    assert_eq!(stage.go_on("a", a), StatusCode::OK);
    let ends = stage.ends();
    assert_eq!(ends, "-2", "A has deleted the lock of B");
    assert_eq!(stage.buy(0), StatusCode::OK, "C comes in beside B");
    assert_eq!(stage.go_on("b", b), StatusCode::OK);
    let oversold = stage.oversold();
    assert!(oversold > 0, "B and C both sold: {oversold}");
    let (way, done) = match at {
        "held" => (
            "3: `SET NX PX`, `DEL`",
            "the work takes longer than the expiry",
        ),
        _ => (
            "4: `SET NX PX` with an id, `GET`, `DEL` if equal",
            "the expiry passes between `GET` and `DEL`",
        ),
    };
    let seen = format!(
        "the holder deletes the lock of the next one, and a third comes in: {oversold} oversold"
    );
    Failure { way, done, seen }
}

/// A takes so long that its lock ends and B has it too. The script deletes no lock of B's, and both sell the same piece.
fn two_holders(stage: &Stage<'_>) -> Failure {
    let a = stage.pause(0, "held", "a");
    stage.expire();
    let b = stage.pause(1, "held", "b");
    let holder = stage.holder();
    assert_eq!(stage.go_on("a", a), StatusCode::OK);
    assert_eq!(stage.holder(), holder, "the script deletes no lock of B's");
    assert_eq!(stage.go_on("b", b), StatusCode::OK);
    let oversold = stage.oversold();
    assert!(oversold > 0, "A and B sold the same piece: {oversold}");
    Failure {
        way: "5: `SET NX PX` with an id, compare and delete in a script",
        done: "the work takes longer than the expiry",
        seen: format!("two hold at once, and neither is told: {oversold} oversold"),
    }
}
