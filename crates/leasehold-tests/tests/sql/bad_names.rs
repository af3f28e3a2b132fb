//! One row that another transaction keeps locked.

use std::process::Command;

use leasehold::Name;
use leasehold::conformance::Subject;
use leasehold::conformance::isolation::{Spoil, one_bad_name_costs_no_other};
use leasehold::engine::Query;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
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

/// Looks at the lock of a client whose row is damaged by this, and at all locks.
async fn looked_at(url: &str, damage: impl FnOnce()) {
    let client = leasehold::connect(url).await.expect("connected");
    let guard = client.mutex("x").lock().await.expect("locked");
    damage();
    let name = Query::name(Name::new("x").expect("a name"));
    for query in [Query::all(), name] {
        let lines = client.inspect(&query).await.expect("seen");
        let [line] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert_eq!(line.holders[0].fence, Some(guard.fence()));
        let who = line.holders[0].who.as_ref().expect("who it is");
        assert!(who.host.starts_with("h\u{fffd}"), "{who:?}");
    }
    let _ = guard.release().await.expect("released");
}

/// One program wrote what is no text; another wrote an id that is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_damaged_breaks_no_look() {
    let server = Postgres::start();
    looked_at(&server.url(), || {
        let _ = server.sql(
            "UPDATE leasehold_session SET host = '\\x68ff', command = '\\xff'; \
             INSERT INTO leasehold_session VALUES ('', '', -1, '', 0), \
             (decode(repeat('ab', 17), 'hex'), '', 1, '', 0)",
        );
    })
    .await;
    let server = MariaDb::start();
    looked_at(&server.url(), || {
        let _ = server.sql(
            "UPDATE lab.leasehold_session SET host = x'68ff', command = x'ff'; \
             INSERT INTO lab.leasehold_session VALUES (x'ab', '', -1, '', 0)",
        );
    })
    .await;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("locks.db");
    looked_at(&format!("sqlite:{}", file.display()), || {
        let file = rusqlite::Connection::open(&file).expect("opened");
        let damage = "UPDATE leasehold_session SET host = x'68ff', command = x'ff'; \
             INSERT INTO leasehold_session VALUES ('no id', 'text', 'no pid', 7, 0)";
        file.execute_batch(damage).expect("damaged");
    })
    .await;
}
