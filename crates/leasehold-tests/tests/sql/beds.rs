//! The beds of the databases.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold::engine::{Sql, Url};
use leasehold_testkit::servers::mariadb::MariaDb;
use leasehold_testkit::servers::postgres::Postgres;
use leasehold_tests::Bed;

const LOCKER: &str = env!("CARGO_BIN_EXE_locker");

pub(crate) fn postgres() -> Bed {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    let server = SERVER.get_or_init(Postgres::start);
    Bed::new(LOCKER, &[server.port], |ports| server.url_by(ports[0]))
}

pub(crate) fn mariadb() -> Bed {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    let server = SERVER.get_or_init(MariaDb::start);
    Bed::new(LOCKER, &[server.port], |ports| server.url_by(ports[0]))
}

/// In a directory of the caller's.
pub(crate) fn sqlite(dir: &Path) -> Bed {
    let url = format!("sqlite:{}", dir.join("locks.db").display());
    let mut bed = Bed::new(LOCKER, &[], move |_| url.clone());
    // One file, and one writer at a time.
    bed.lease = Duration::from_millis(2_000);
    let file = dir.join("locks.db");
    bed.stands_aside = Box::new(move || {
        let opened = rusqlite::Connection::open(&file).expect("it opens");
        let wait = opened.busy_timeout(Duration::from_millis(100));
        wait.and_then(|()| opened.execute_batch("BEGIN IMMEDIATE; ROLLBACK"))
            .is_ok()
    });
    bed
}

pub(crate) fn engine(bed: &Bed) -> Sql {
    Sql::from_url(&Url::parse(&bed.direct()).expect("a URL")).expect("an engine")
}
