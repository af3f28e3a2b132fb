//! The same failures under Leasehold.

use std::time::Duration;

use hyper::StatusCode;
use rustix::process::Signal;
use tokio::time::Instant;

use super::{Failure, Stage};
use crate::demo::fleet::{Fleet, Servers};

/// The lease of the fleet that this is shown on.
pub const LEASE: Duration = Duration::from_secs(2);

/// Brings about all four. The numbers of the items begin there.
pub fn all(servers: &Servers, fleet: &mut Fleet, item: u64) -> Vec<Failure> {
    vec![
        dead(Stage::new(servers, fleet, item, "waiting")),
        long(&Stage::new(servers, fleet, item + 1, "fail-fast")),
        stopped(&Stage::new(servers, fleet, item + 2, "waiting")),
        ended(Stage::new(servers, fleet, item + 3, "waiting")),
    ]
}

/// The holder's process dies: the next in line has the lock within a lease.
fn dead(mut stage: Stage<'_>) -> Failure {
    stage.crash("held");
    let begin = Instant::now();
    assert_eq!(stage.buy(1), StatusCode::OK);
    let waited = begin.elapsed();
    assert_eq!(stage.oversold(), 0);
    Failure {
        way: "Leasehold",
        done: "the process dies while it holds the lock",
        seen: format!(
            "the next buyer has it {:.1} s later: 0 oversold",
            waited.as_secs_f64()
        ),
    }
}

/// The work takes longer than the lease: the lock is renewed.
fn long(stage: &Stage<'_>) -> Failure {
    let a = stage.pause(0, "held", "a");
    let begin = Instant::now();
    let mut busy = 0;
    while begin.elapsed() < LEASE * 3 / 2 {
        assert_eq!(stage.buy(1), StatusCode::CONFLICT, "A holds the lock");
        busy += 1;
    }
    assert_eq!(stage.go_on("a", a), StatusCode::OK);
    assert_eq!(stage.oversold(), 0);
    Failure {
        way: "Leasehold",
        done: "the work takes longer than the lease",
        seen: format!("the lock is renewed, {busy} buyers are told \"busy\": 0 oversold"),
    }
}

/// The holder's process stands still for longer than its lease, and wakes in the middle of its work.
fn stopped(stage: &Stage<'_>) -> Failure {
    let a = stage.pause(0, "held", "a");
    let process = stage.fleet.instances[0].process();
    process.signal(Signal::STOP);
    assert_eq!(stage.buy(1), StatusCode::OK, "the lock passes on");
    stage.let_go("a");
    process.signal(Signal::CONT);
    assert_eq!(stage.reply(a), Ok(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(stage.oversold(), 0);
    Failure {
        way: "Leasehold",
        done: "the process stands still for longer than the lease (`SIGSTOP`)",
        seen: "the next buyer has the lock; the late write is refused by its fence: 0 oversold"
            .to_owned(),
    }
}

/// The holder's instance is told to end, as with every deployment: it finishes the sale and gives the lock back.
fn ended(stage: Stage<'_>) -> Failure {
    let a = stage.pause(0, "held", "a");
    let next = stage.send(1, "");
    let process = stage.fleet.instances[0].process();
    process.signal(Signal::TERM);
    assert_eq!(stage.go_on("a", a), StatusCode::OK);
    stage.gone();
    assert_eq!(stage.reply(next), Ok(StatusCode::OK));
    stage.fleet.restart(0);
    assert_eq!(stage.oversold(), 0);
    Failure {
        way: "Leasehold",
        done: "the instance is told to end in the middle of a sale (`SIGTERM`)",
        seen: "it finishes the sale, the next buyer has the lock: 0 oversold".to_owned(),
    }
}
