//! Keys of other programs below the prefix, and below names: a look at all locks shows those that are.

use leasehold::engine::Query;
use leasehold_testkit::servers::consul::Consul;

/// Puts keys, takes a lock beside them, and looks at all.
async fn beside(server: &Consul, url: &str, keys: &[(&str, &str)]) {
    let session = server.ask(
        "PUT",
        "session/create",
        r#"{"NodeChecks": [], "TTL": "600s"}"#,
    );
    let session = session.expect("made");
    let session = session.split('"').nth(3).expect("an id");
    for (key, value) in keys {
        let put = server.ask(
            "PUT",
            &format!("kv/{}", key.replace("SESSION", session)),
            value,
        );
        let _ = put.unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    let client = leasehold::connect(url).await.expect("connected");
    let guard = client.mutex("mine").lock().await.expect("free");
    let lines = client.inspect(&Query::all()).await.expect("seen");
    let mine = lines.iter().find(|line| line.name.as_str() == "mine");
    assert_eq!(mine.expect("shown").holders[0].fence, Some(guard.fence()));
    let _ = guard.release().await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn foreign_keys_break_no_look_at_consul() {
    let server = Consul::start();
    let long = format!("leasehold/1 1 1 10000 0 7 {} c", "h".repeat(70_000));
    let junk = "junk\u{1}";
    let own = [
        ("strange/", junk),
        ("strange/config", junk),
        ("strange/0/", ""),
        ("strange/zz/x/line/1", junk),
        ("strange/3/%25zz/line/x", junk),
        ("strange/3/%FF%FE/line/1", junk),
        ("strange/3/a/line/no-claim?acquire=SESSION", junk),
        (
            "strange/3/a/permits/00?acquire=SESSION&flags=18446744073709551615",
            junk,
        ),
        (
            "strange/3/fat/line/00000000000000000000000000000007?acquire=SESSION",
            &long,
        ),
        ("strange/%25gates/x", junk),
        ("strange/%25evicted/x", junk),
    ];
    beside(&server, &format!("{}/strange", server.url()), &own).await;
    // The flags of a lock and of a semaphore.
    let (lock, semaphore) = (0x2ddc_cbc0_58a5_0c18_u64, 0xe0f6_9a2b_aa41_4de0_u64);
    let lock = format!("services/a/.lock?flags={lock}&acquire=SESSION");
    let [text, bare] =
        [".lock", "no-session"].map(|key| format!("services/s/{key}?flags={semaphore}"));
    let shared = [
        ("services/", junk),
        ("services/a", junk),
        ("services/b/.lock", junk),
        ("services/%FF/.lock", junk),
        (lock.as_str(), junk),
        (text.as_str(), "{\"Limit\": \"no number\", \"Holders\": 7}"),
        (bare.as_str(), junk),
    ];
    beside(
        &server,
        &format!("{}/services?layout=consul", server.url()),
        &shared,
    )
    .await;
}
