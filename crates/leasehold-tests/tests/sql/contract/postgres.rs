//! The whole contract on PostgreSQL, one server for all checks.

use std::sync::OnceLock;

use leasehold::conformance::Subject;
use leasehold::engine::{Sql, Url};
use leasehold_testkit::servers::postgres::Postgres;

fn subject() -> Subject {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    let url = SERVER.get_or_init(Postgres::start).url();
    let engine = Sql::from_url(&Url::parse(&url).expect("a URL")).expect("an engine");
    Subject::new(engine).with_store(leasehold::store::open(&url).expect("a store"))
}

leasehold::conformance_tests!(subject());
