//! A server that says nothing while many tasks try.

use leasehold_tests::overload::is_over_with_the_silence;

use super::beds::{mariadb, postgres};

#[test]
fn of_postgres() {
    is_over_with_the_silence(&postgres());
}

#[test]
fn of_mariadb() {
    is_over_with_the_silence(&mariadb());
}
