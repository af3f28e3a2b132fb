//! A server that says nothing while many tasks try.

use leasehold_tests::overload::is_over_with_the_silence;

#[test]
fn of_a_server() {
    is_over_with_the_silence(&super::beds::one());
}

#[test]
fn of_a_server_with_consuls_own_locks() {
    is_over_with_the_silence(&super::beds::theirs());
}
