//! The whole contract on SQLite, in a file of its own per check.

use leasehold::conformance::Subject;
use leasehold::engine::{Sql, Url};

fn subject() -> Subject {
    let dir = tempfile::tempdir().expect("a directory").keep();
    let url = format!("sqlite:{}", dir.join("locks.db").display());
    let engine = Sql::from_url(&Url::parse(&url).expect("a URL")).expect("an engine");
    Subject::new(engine).with_store(leasehold::store::open(&url).expect("a store"))
}

leasehold::conformance_tests!(subject());
