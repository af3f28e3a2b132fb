//! The whole contract on Redis: one server, by its socket, with TLS, below Sentinel, as a Cluster.

use std::sync::OnceLock;

use leasehold::conformance::Subject;
use leasehold::engine::{Redis as Engine, Url};
use leasehold_testkit::servers::redis::{Cluster, Redis, Sentinels};

/// One server for all checks, an engine of its own for each: every test has a runtime of its own.
fn engine(url: &str) -> Engine {
    let url = Url::parse(url).expect("a URL");
    Engine::from_url(&url).expect("an engine")
}

/// An engine and a store on the same server.
fn subject(url: &str) -> Subject {
    let store = leasehold::store::open(url).expect("a store");
    Subject::new(engine(url)).with_store(store)
}

fn one() -> &'static Redis {
    static SERVER: OnceLock<Redis> = OnceLock::new();
    SERVER.get_or_init(Redis::start)
}

mod standalone {
    use super::*;
    leasehold::conformance_tests!(subject(&one().url()));
}

mod unix {
    use super::*;
    leasehold::conformance_tests!(subject(&one().unix_url()));
}

mod tls {
    use super::*;

    fn server() -> &'static Redis {
        static SERVER: OnceLock<Redis> = OnceLock::new();
        SERVER.get_or_init(Redis::tls)
    }

    leasehold::conformance_tests!(subject(&server().url()));
}

mod sentinel {
    use super::*;

    fn servers() -> &'static Sentinels {
        static SERVERS: OnceLock<Sentinels> = OnceLock::new();
        SERVERS.get_or_init(Sentinels::steady)
    }

    leasehold::conformance_tests!(subject(&servers().url()));
}

mod cluster {
    use super::*;

    fn servers() -> &'static Cluster {
        static SERVERS: OnceLock<Cluster> = OnceLock::new();
        SERVERS.get_or_init(Cluster::start)
    }

    leasehold::conformance_tests!(subject(&servers().url()));
}
