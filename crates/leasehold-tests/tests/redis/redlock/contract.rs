//! The contract on Redlock with five nodes: all of it for a mutex, and that the rest is refused.

use std::sync::OnceLock;
use std::time::Duration;

use leasehold::conformance::Subject;
use leasehold::engine::{Redlock, Url};
use leasehold_testkit::servers::redlock::Nodes;

fn nodes() -> &'static Nodes {
    static NODES: OnceLock<Nodes> = OnceLock::new();
    NODES.get_or_init(|| Nodes::start(5))
}

fn subject() -> Subject {
    let url = Url::parse(&nodes().url()).expect("a URL");
    let mut subject = Subject::new(Redlock::from_url(&url).expect("an engine"));
    // A majority has a quarter of the lease to answer.
    subject.lease = Duration::from_millis(2500);
    subject
}

leasehold::conformance_tests!(subject());
