//! kazoo.

use leasehold::ErrorKind;
use leasehold_testkit::peers::python;

use super::{Peer, server};

const KAZOO: Peer = Peer {
    start: || {
        let mut kazoo = python("kazoo");
        let _ = kazoo.args([&server().address(), "3"]);
        kazoo
    },
    root: "/kazoo",
};

super::both::tests!(KAZOO);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_node_names_are_refused_not_ignored() {
    let (client, mut kazoo) = (KAZOO.ours().await, KAZOO.process());
    assert_eq!(kazoo.ask(&KAZOO.on("lock-plain", "plain")), "held");
    let refused = client.mutex("plain").lock().await;
    let refused = refused.expect_err("it would not see us");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert!(refused.to_string().contains("kazoo"), "{refused}");
    let query = leasehold::engine::Query::name(leasehold::Name::new("plain").expect("a name"));
    let lines = client.inspect(&query).await.expect("inspected");
    assert_eq!(lines[0].holders.len(), 1, "it is shown: {lines:?}");
    assert_eq!(kazoo.ask(&KAZOO.on("release-plain", "plain")), "released");
    drop(client.mutex("plain").lock().await.expect("free"));
}
