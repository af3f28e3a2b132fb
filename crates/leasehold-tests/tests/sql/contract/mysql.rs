//! The whole contract on MariaDB, one server for all checks.

use std::sync::OnceLock;

use leasehold::conformance::Subject;
use leasehold::engine::{Sql, Url};
use leasehold_testkit::servers::mariadb::MariaDb;

fn subject() -> Subject {
    static SERVER: OnceLock<MariaDb> = OnceLock::new();
    let url = SERVER.get_or_init(MariaDb::start).url();
    let engine = Sql::from_url(&Url::parse(&url).expect("a URL")).expect("an engine");
    Subject::new(engine).with_store(leasehold::store::open(&url).expect("a store"))
}

leasehold::conformance_tests!(subject());
