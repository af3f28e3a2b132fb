//! The runtime of a call, or of the client, ends.

use leasehold_tests::runtimes::{of_callers_may_end, of_the_client_is_gone};

#[test]
fn etcd_of_callers() {
    of_callers_may_end(&super::beds::one());
}

#[test]
fn etcd_of_the_client() {
    of_the_client_is_gone(&super::beds::one());
}
