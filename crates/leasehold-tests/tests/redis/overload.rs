//! A server that says nothing while many tasks try.

use std::time::Duration;

use leasehold_tests::Bed;
use leasehold_tests::overload::is_over_with_the_silence;

use super::beds;

#[test]
fn in_own_layout() {
    is_over_with_the_silence(&beds::own());
}

#[test]
fn in_redissons_layout() {
    is_over_with_the_silence(&beds::redisson());
}

#[test]
fn on_all_nodes_of_redlock() {
    is_over_with_the_silence(&beds::redlock());
}

/// Claims that are left behind do not end by themselves during the silence.
#[test]
fn in_own_layout_with_a_long_lease() {
    let lease = Duration::from_secs(3_600);
    is_over_with_the_silence(&Bed {
        lease,
        ..beds::own()
    });
}
