//! One name whose keys another program deletes or damages again and again: no other name notices.

use leasehold::conformance::Subject;
use leasehold::conformance::isolation::{Spoil, one_bad_name_costs_no_other};
use leasehold::engine::{Etcd as Engine, Url};
use leasehold_testkit::servers::etcd::Etcd;
use leasehold_tests::vandal::Vandal;

fn delete(server: &Etcd, room: &str) {
    let _ = server.say(&["del", room, "--prefix"]);
}

/// The keys lose their leases and say nothing of a claim, and there is one more.
fn damage(server: &Etcd, room: &str) {
    let more = [format!("{room}1-write-{:032x}", 7), format!("{room}x")];
    for key in server.keys(room).into_iter().chain(more) {
        let _ = server.say(&["put", &key, "junk"]);
    }
}

async fn spoiled(spoil: fn(&Etcd, &str)) {
    let server: &'static Etcd = Box::leak(Box::new(Etcd::start()));
    let url = Url::parse(&format!("{}?prefix=isolated/", server.url())).expect("a URL");
    let mut subject = Subject::new(Engine::from_url(&url).expect("an engine"));
    subject.spoil = Some(Spoil::new(move |name: &str| {
        let room = format!("isolated/{name}/");
        let same = room.clone();
        Vandal::new(move || spoil(server, &room), move || delete(server, &same))
    }));
    subject.lease = leasehold_tests::ISOLATED;
    one_bad_name_costs_no_other(&subject).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_name_whose_keys_are_deleted() {
    spoiled(delete).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_name_whose_keys_are_damaged() {
    spoiled(damage).await;
}
