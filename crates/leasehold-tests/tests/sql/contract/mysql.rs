//! The whole contract on MariaDB, one server for all checks.

use std::sync::OnceLock;

use leasehold::conformance::Subject;
use leasehold::engine::{Sql, Url};
use leasehold_testkit::servers::mariadb::MariaDb;

fn engine() -> Sql {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    let url = SERVER.get_or_init(MariaDb::start).url();
    Sql::at(&Url::parse(&url).expect("a URL")).expect("an engine")
}

leasehold::conformance_tests!(Subject::new(engine()));
