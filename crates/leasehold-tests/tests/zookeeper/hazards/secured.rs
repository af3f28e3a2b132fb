//! Through TLS: trust in certificates, and a connection that is lost or takes nothing.

use leasehold::ErrorKind;
use tokio::task::JoinSet;

use super::*;

async fn secured(server: &ZooKeeper, lease: Duration) -> Client {
    let url = server.secured("/locks");
    let opened = ConnectOptions::new().lease(lease).connect(&url).await;
    opened.expect("connected")
}

/// A URL without a certificate of ours.
fn anonymous(url: &str) -> &str {
    url.split("&cert=").next().unwrap_or(url)
}

/// Neither a certificate of strangers nor one for another host is taken, nor are we without one of our own, and the login
/// is told to no such server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_untrusted_server_is_told_nothing() {
    let (server, other) = (ZooKeeper::tls(), ZooKeeper::tls_as("DNS:elsewhere"));
    let login = |server: &ZooKeeper| server.secured("/locks").replace("//", "//me:hunter2@");
    let (url, elsewhere) = (login(&server), login(&other));
    let (nobodys, own) = url.split_once("&ca=").expect("an authority");
    let (_, others) = elsewhere.split_once("&ca=").expect("an authority");
    for (url, why) in [
        (nobodys.to_owned(), "UnknownIssuer"),
        (url.replace(own, others), "invalid peer certificate"),
        (elsewhere.clone(), "not valid for name \"localhost\""),
        (
            format!("{}&ca={own}", anonymous(nobodys)),
            "received fatal alert",
        ),
    ] {
        let refused = soon("refused", leasehold::connect(&url)).await;
        let refused = refused.expect_err("not trusted");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
        let said = refused.to_string();
        assert!(said.contains(why), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
    let trusted = leasehold::connect(&url).await.expect("trusted");
    let _ = trusted.mutex("x").lock().await.expect("free");
}

/// Plain words to a port for TLS, and TLS to a port for plain words, are errors and no endless wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_port_is_an_error() {
    let server = ZooKeeper::tls();
    let secured = server.secured("/locks");
    let plain = secured.split('?').next().expect("a URL");
    let wrong = secured.replace(
        plain,
        &format!("zookeeper://localhost:{}/locks", server.port()),
    );
    for url in [plain, &wrong] {
        let refused = soon("refused", leasehold::connect(url)).await;
        assert_eq!(
            refused.expect_err("the wrong port").kind(),
            ErrorKind::Unavailable
        );
    }
}

/// A connection that is lost is made again, with a greeting of its own, and nothing was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_made_again() {
    let server = ZooKeeper::tls();
    let url = server.secured("/locks");
    let port = url.split([':', '/']).find_map(|part| part.parse().ok());
    let port: u16 = port.expect("a port");
    let proxy = Proxy::before(port);
    let url = url.replace(&port.to_string(), &proxy.port.to_string());
    let opened = async || ConnectOptions::new().lease(LONG).connect(&url).await;
    let (ours, theirs) = (opened().await, opened().await);
    let (ours, theirs) = (ours.expect("connected"), theirs.expect("connected"));
    let guard = ours.mutex("x").lock().await.expect("free");
    let next = waiter(&theirs, "x");
    line(&ours, "x", 1, 1).await;
    proxy.reset();
    let another = soon("another", ours.mutex("y").lock()).await;
    let _ = another.expect("locked").release().await.expect("released");
    is(&guard, GuardState::Valid).await;
    assert_eq!(guard.release().await.expect("released"), Released::Released);
    let _ = granted(next).await;
}

/// Bytes that a server does not take are kept until it does, and none of them is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_a_server_does_not_take_are_kept() {
    const MANY: usize = 6_000;
    let server = ZooKeeper::tls();
    // A claim is answered within its lease: a busy machine takes that long for all of them.
    let ours = secured(&server, LONG * 3 / 2).await;
    let guard = ours.mutex("before").lock().await.expect("free");
    server.pause();
    let long = "x".repeat(490);
    let mut asking = JoinSet::new();
    for at in 0..MANY {
        let mutex = ours.mutex(format!("{long}{at}"));
        let _ = asking.spawn(async move { mutex.lock().await?.release().await });
    }
    let answered = tokio::time::timeout(LEASE / 2, asking.join_next()).await;
    assert!(answered.is_err(), "a frozen server answers no client");
    server.resume();
    let all = async {
        let mut released = 0;
        while let Some(done) = asking.join_next().await {
            let done = done.expect("no panic").expect("locked and released");
            assert_eq!(done, Released::Released);
            released += 1;
        }
        released
    };
    assert_eq!(soon("all of them", all).await, MANY);
    assert_eq!(guard.release().await.expect("released"), Released::Released);
}
