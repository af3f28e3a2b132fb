//! The whole contract on SQLite, in a file of its own per check.

use leasehold::conformance::Subject;
use leasehold::engine::{Sql, Url};

fn engine() -> Sql {
    let dir = tempfile::tempdir().expect("a directory").keep();
    let url = format!("sqlite:{}", dir.join("locks.db").display());
    Sql::at(&Url::parse(&url).expect("a URL")).expect("an engine")
}

leasehold::conformance_tests!(Subject::new(engine()));
