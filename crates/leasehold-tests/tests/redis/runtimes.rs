//! The runtime of a call, or of the client, ends.

use leasehold_tests::runtimes::{of_callers_may_end, of_the_client_is_gone};

use super::beds;

#[test]
fn own_of_callers() {
    of_callers_may_end(&beds::own());
}

#[test]
fn own_of_the_client() {
    of_the_client_is_gone(&beds::own());
}
#[test]
fn redisson_of_callers() {
    of_callers_may_end(&beds::redisson());
}

#[test]
fn redisson_of_the_client() {
    of_the_client_is_gone(&beds::redisson());
}
#[test]
fn redlock_of_callers() {
    of_callers_may_end(&beds::redlock());
}

#[test]
fn redlock_of_the_client() {
    of_the_client_is_gone(&beds::redlock());
}
