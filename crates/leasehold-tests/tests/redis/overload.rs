//! A server that says nothing while many tasks try.

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
