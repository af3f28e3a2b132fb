//! A server that says nothing while many tasks try.

use leasehold_tests::overload::is_over_with_the_silence;

#[test]
fn of_a_server() {
    is_over_with_the_silence(&super::beds::one());
}
