//! The beds of etcd.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold_testkit::servers::etcd::Etcd;
use leasehold_tests::Bed;

/// Leases of etcd are whole seconds.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

pub(crate) fn one() -> Bed {
    static SERVER: OnceLock<Etcd> = OnceLock::new();
    let port = SERVER.get_or_init(Etcd::start).port();
    let mut bed = Bed::new(env!("CARGO_BIN_EXE_locker"), &[port], |ports| {
        format!("etcd://127.0.0.1:{}?prefix=shared/", ports[0])
    });
    bed.lease = LEASE;
    // A server looks every half second which leases have ended.
    bed.step = Duration::from_millis(15);
    bed
}
