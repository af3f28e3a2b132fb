//! Shared by the tests of the databases.

use std::process::Command;

use leasehold::Name;
use leasehold::engine::{Engine, Query, Sql};
use leasehold_testkit::poll::until;
use leasehold_testkit::process::Process;

/// A process that locks on command.
pub(crate) fn locker(url: &str, lease_ms: u32) -> Process {
    let mut command = Command::new(env!("CARGO_BIN_EXE_locker"));
    let locker = Process::start(command.arg(url).arg(lease_ms.to_string()));
    assert_eq!(locker.hear(), "ready");
    locker
}

/// The fence that a process says it holds.
pub(crate) fn fence(answer: &str) -> u64 {
    let fence = answer
        .strip_prefix("held ")
        .and_then(|fence| fence.parse().ok());
    fence.unwrap_or_else(|| panic!("not held: {answer}"))
}

/// Waits until so many claims of other processes wait for a name.
pub(crate) fn in_line(engine: &Sql, name: &str, waiters: usize) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    until("claims wait", || {
        let query = Query::name(Name::new(name).expect("a name"));
        let lines = runtime.block_on(engine.inspect(&query)).expect("inspect");
        match lines.first().map_or(0, |line| line.waiters.len()) {
            waiting if waiting == waiters => Ok(()),
            _ => Err(format!("{lines:?}")),
        }
    });
}
