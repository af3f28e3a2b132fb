//! One name whose keys are deleted again and again: no other name notices.

use leasehold::conformance::Subject;
use leasehold::conformance::isolation::{Spoil, one_bad_name_costs_no_other};
use leasehold::engine::{Consul as Engine, Url};
use leasehold_testkit::servers::consul::Consul;

/// The keys of one name, deleted behind its holders' backs; and nothing to undo.
fn deleted(server: &Consul, name: &str) {
    let keys = server.ask("GET", "kv/isolated/?keys", "").expect("keys");
    let part = format!("/{name}/");
    let keys = keys.split('"').filter(|key| key.contains(&part));
    for key in keys {
        let _ = server
            .ask("DELETE", &format!("kv/{key}"), "")
            .expect("deleted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_name_whose_keys_are_deleted() {
    let server: &'static Consul = Box::leak(Box::new(Consul::start()));
    let url = Url::parse(&format!("{}/isolated", server.url())).expect("a URL");
    let mut subject = Subject::new(Engine::from_url(&url).expect("an engine"));
    subject.spoil = Some(Spoil::new(move |name: &str| deleted(server, name)));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}
