//! The whole contract on etcd: one server, one through TLS, and a cluster of three.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::conformance::Subject;
use leasehold::engine::{Etcd as Engine, Url};
use leasehold_testkit::servers::etcd::{Cluster, Etcd};

/// Leases of etcd are whole seconds.
const LEASE: Duration = Duration::from_secs(2);

/// One server for all checks, an engine of its own for each: every test has a runtime of its own.
fn subject(url: &str) -> Subject {
    let url = Url::parse(url).expect("a URL");
    let engine = Engine::from_url(&url).expect("an engine").lease(LEASE);
    let mut subject = Subject::new(engine);
    subject.lease = LEASE;
    subject
}

mod alone {
    use super::*;

    fn one() -> &'static Etcd {
        static SERVER: OnceLock<Etcd> = OnceLock::new();
        SERVER.get_or_init(Etcd::start)
    }

    leasehold::conformance_tests!(subject(&format!("{}?prefix=check/", one().url())));
}

mod secured {
    use super::*;

    fn one() -> &'static Etcd {
        static SERVER: OnceLock<Etcd> = OnceLock::new();
        SERVER.get_or_init(Etcd::tls)
    }

    leasehold::conformance_tests!(subject(&one().url()));
}

mod three {
    use super::*;

    fn three() -> &'static Cluster {
        static SERVERS: OnceLock<Cluster> = OnceLock::new();
        SERVERS.get_or_init(Cluster::start)
    }

    leasehold::conformance_tests!(subject(&three().url()));
}

mod own;
