//! One row that another transaction keeps locked.

use std::process::Command;

use leasehold::conformance::Subject;
use leasehold::conformance::isolation::{Spoil, one_bad_name_costs_no_other};
use leasehold_testkit::process::Process;
use leasehold_tests::Bed;

use super::beds::{engine, mariadb, postgres};

/// `key` is how the database makes a line's key of a name. A row is locked by its key: MariaDB locks every row that a
/// search by another column reads, and with them all other names.
async fn isolated(
    bed: Bed,
    key: fn(&str) -> String,
    client: impl Fn(u16) -> Command + Send + Sync + 'static,
) {
    let mut subject = Subject::new(engine(&bed));
    let port = bed.ports[0];
    subject.spoil = Some(Spoil::new(move |name| {
        let mut other = Process::start(&mut client(port));
        other.say("BEGIN;");
        other.say(&format!(
            "SELECT 'locked' FROM leasehold_line WHERE k = {} FOR UPDATE;",
            key(name)
        ));
        assert_eq!(other.hear(), "locked");
        other
    }));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_postgres() {
    let key = |name: &str| format!("substr(sha256('{name}'), 1, 16)");
    isolated(postgres(), key, |port| {
        let mut psql = Command::new("psql");
        let _ = psql.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
        let _ = psql.args(["-U", "lab", "-d", "postgres", "-XAtq"]);
        psql
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_mariadb() {
    let key = |name: &str| format!("unhex(left(sha2('{name}', 256), 32))");
    isolated(mariadb(), key, |port| {
        let mut client = Command::new("mariadb");
        let _ = client.args(["--no-defaults", "-h", "127.0.0.1", "-P", &port.to_string()]);
        let _ = client.args(["-u", "root", "-N", "-B", "--unbuffered", "lab"]);
        client
    })
    .await;
}
