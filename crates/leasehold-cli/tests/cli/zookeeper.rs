//! On ZooKeeper, where the server decides how long a lease is and holders can be asked to give up.

use leasehold_testkit::servers::zookeeper::ZooKeeper;

use crate::common::{Place, Running, until};

#[test]
fn status_shows_the_session_that_was_negotiated() {
    let (place, server) = (Place::new(), ZooKeeper::start());
    let url = format!("{}/locks", server.url());
    let on = |args: &[&str]| Running::start(place.command(args).env("LEASEHOLD_URL", &url));
    let shown = |args: &[&str]| on(args).end().out;
    let holder = on(&["run", "x", "--lease", "3s", "--", "sleep", "1000"]);
    let lines = until("a holder", || {
        let text = shown(&["status", "--json"]);
        let lines: serde_json::Value = serde_json::from_str(&text).unwrap();
        match lines[0]["holders"][0]["pid"].is_u64() {
            true => Ok(lines),
            false => Err(text),
        }
    });
    // A third longer than the lease, so that the holder is the first to know.
    assert_eq!(lines[0]["holders"][0]["lease_ms"], 4001, "{lines}");
    let table = shown(&["status"]);
    assert!(
        table.contains("LEASE") && table.contains("4.001s"),
        "{table}"
    );
    assert_eq!(
        shown(&["evict", "x", "--ask"]),
        "1 holder of x was asked to give it up\n"
    );
    assert_eq!(shown(&["evict", "y", "--ask"]), "no process holds y\n");
    drop(holder);
}
