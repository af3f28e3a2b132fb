//! What the tests of the databases share.

use std::process::Command;

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
