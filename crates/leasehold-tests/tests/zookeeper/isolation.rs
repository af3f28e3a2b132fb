//! One name whose nodes another program deletes again and again, or among which it puts its own: no other name notices.

use leasehold::conformance::Subject;
use leasehold::conformance::isolation::{Spoil, one_bad_name_costs_no_other};
use leasehold::engine::{Url, ZooKeeper as Engine};
use leasehold_testkit::peers::python;
use leasehold_testkit::process::Process;
use leasehold_testkit::servers::zookeeper::ZooKeeper;
use leasehold_tests::vandal::Vandal;

/// A program that does to the node of a name what this says, each time anew, and deletes the node in the end.
fn vandal(
    server: &ZooKeeper,
    node: String,
    mut says: impl FnMut(&str) -> String + Send + 'static,
) -> Vandal {
    let kazoo = || {
        let kazoo = Process::start(python("kazoo").args([&*server.address(), "10"]));
        assert_eq!(kazoo.hear(), "ready");
        kazoo
    };
    let (mut spoils, mut tidies) = (kazoo(), kazoo());
    let same = node.clone();
    let spoil = move || {
        let answer = spoils.ask(&says(&node));
        assert!(["deleted", "put"].contains(&&*answer), "{answer}");
    };
    let tidy = move || assert_eq!(tidies.ask(&format!("delete {same}")), "deleted");
    Vandal::new(spoil, tidy)
}

async fn spoiled<S: FnMut(&str) -> String + Send + 'static>(says: fn() -> S) {
    let server: &'static ZooKeeper = Box::leak(Box::new(ZooKeeper::start()));
    let url = Url::parse(&format!("{}/isolated", server.url())).expect("a URL");
    let mut subject = Subject::new(Engine::from_url(&url).expect("an engine"));
    subject.spoil = Some(Spoil::new(move |name: &str| {
        vandal(server, format!("/isolated/{name}"), says())
    }));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_name_whose_nodes_are_deleted() {
    spoiled(|| |node: &str| format!("delete {node}")).await;
}

/// Nodes of no session, of every kind, first in line and with data that is no claim's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_name_with_foreign_nodes() {
    spoiled(|| {
        let mut puts = 0;
        move |node: &str| {
            puts += 1;
            let kind = ["lock-", "__WRIT__", "lease-", "__lock__", "x"][puts % 5];
            format!("put {node}/{puts:04}-{kind}{:010} ff00", 0)
        }
    })
    .await;
}
