//! What the shared tests need of Consul.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold_testkit::servers::consul::Consul;
use leasehold_tests::Bed;

/// A lease is the TTL of a session, which ends up to twice as late.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) fn one() -> Bed {
    below("shared")
}

/// The locks of `consul lock`.
pub(crate) fn theirs() -> Bed {
    below("theirs?layout=consul")
}

fn below(rest: &'static str) -> Bed {
    static SERVER: OnceLock<Consul> = OnceLock::new();
    let port = SERVER.get_or_init(Consul::start).port();
    let mut bed = Bed::new(env!("CARGO_BIN_EXE_locker"), &[port], move |ports| {
        format!("consul://127.0.0.1:{}/{rest}", ports[0])
    });
    bed.lease = LEASE;
    // A lease is the client's: the server ends the session when it gets to it.
    bed.step = Duration::from_millis(15);
    bed
}
