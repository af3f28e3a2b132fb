//! The whole contract on PostgreSQL, one server for all checks.

use std::sync::OnceLock;

use leasehold::conformance::Subject;
use leasehold::engine::{Sql, Url};
use leasehold_testkit::servers::postgres::Postgres;

fn engine() -> Sql {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    let url = SERVER.get_or_init(Postgres::start).url();
    Sql::at(&Url::parse(&url).expect("a URL")).expect("an engine")
}

leasehold::conformance_tests!(Subject::new(engine()));
