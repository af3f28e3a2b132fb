//! The runtime of a call, or of the client, ends.

use leasehold_tests::runtimes::{of_callers_may_end, of_the_client_is_gone};

use super::beds::{mariadb, postgres, sqlite};

#[test]
fn postgres_of_callers() {
    of_callers_may_end(&postgres());
}

#[test]
fn postgres_of_the_client() {
    of_the_client_is_gone(&postgres());
}
#[test]
fn mariadb_of_callers() {
    of_callers_may_end(&mariadb());
}

#[test]
fn mariadb_of_the_client() {
    of_the_client_is_gone(&mariadb());
}
#[test]
fn sqlite_of_callers() {
    let dir = tempfile::tempdir().expect("a directory");
    of_callers_may_end(&sqlite(dir.path()));
}

#[test]
fn sqlite_of_the_client() {
    let dir = tempfile::tempdir().expect("a directory");
    of_the_client_is_gone(&sqlite(dir.path()));
}
