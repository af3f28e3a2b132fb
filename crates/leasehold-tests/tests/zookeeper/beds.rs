//! The beds of ZooKeeper.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold_testkit::servers::zookeeper::ZooKeeper;
use leasehold_tests::Bed;

/// A lease is the end of a session, and those are not given out in milliseconds.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) fn one() -> Bed {
    static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
    let port = SERVER.get_or_init(ZooKeeper::start).port();
    let mut bed = Bed::new(env!("CARGO_BIN_EXE_locker"), &[port], |ports| {
        format!("zookeeper://127.0.0.1:{}/shared", ports[0])
    });
    bed.lease = LEASE;
    // A server ends sessions tick by tick, and a tick is 200 ms.
    bed.step = Duration::from_millis(15);
    bed
}
