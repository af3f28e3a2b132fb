//! The whole contract on ZooKeeper: one server, and an ensemble of three.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::conformance::Subject;
use leasehold::engine::{Url, ZooKeeper as Engine};
use leasehold_testkit::servers::zookeeper::{Ensemble, ZooKeeper};

/// A lease here is the end of a ZooKeeper session, and those are not given out in milliseconds.
const LEASE: Duration = Duration::from_secs(2);

/// One server for all checks, an engine of its own for each: every test has a runtime of its own.
fn subject(url: &str) -> Subject {
    let url = Url::parse(&format!("{url}/check/locks")).expect("a URL");
    let engine = Engine::at(&url).expect("an engine").lease(LEASE);
    let mut subject = Subject::new(engine);
    subject.lease = LEASE;
    subject
}

mod standalone {
    use super::*;

    fn one() -> &'static ZooKeeper {
        static SERVER: OnceLock<ZooKeeper> = OnceLock::new();
        SERVER.get_or_init(ZooKeeper::start)
    }

    leasehold::conformance_tests!(subject(&one().url()));
}

mod ensemble {
    use super::*;

    fn three() -> &'static Ensemble {
        static SERVERS: OnceLock<Ensemble> = OnceLock::new();
        SERVERS.get_or_init(Ensemble::start)
    }

    leasehold::conformance_tests!(subject(&three().url()));
}
