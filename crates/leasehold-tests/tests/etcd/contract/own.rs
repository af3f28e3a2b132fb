//! Leases, logins, names and kinds in etcd.

use super::*;
use leasehold::engine::{Query, Url};
use leasehold::{ConnectOptions, ErrorKind, Name};

fn one() -> &'static Etcd {
    static SERVER: OnceLock<Etcd> = OnceLock::new();
    SERVER.get_or_init(Etcd::start)
}

/// A run on another version says which.
#[test]
fn the_version_of_the_server_is_printed() {
    println!("{}", one().version());
}

/// Leases are whole seconds, a third longer than asked for and never shorter than the server allows; the guard says
/// what the server gave.
#[tokio::test]
async fn a_lease_is_what_the_server_makes_of_it() {
    let client = leasehold::connect(&one().url()).await.expect("connected");
    for (asked, given) in [(10_000, 14), (3_000, 4), (250, 2)] {
        let asked = Duration::from_millis(asked);
        let mutex = client.mutex("lease").lease(asked).keep_alive(false);
        // The first claim of a lease asks for one; on a busy machine that may take longer than 250 ms.
        let guard = leasehold_testkit::poll::eventually("a lease", async || {
            mutex.lock().await.map_err(|error| error.to_string())
        })
        .await;
        assert_eq!(guard.lease(), Duration::from_secs(given));
        assert!(guard.remaining() <= asked);
        let query = Query::name(guard.name().clone());
        let lines = client.inspect(&query).await.expect("inspected");
        let shown = lines[0].holders[0].lease;
        assert_eq!(shown, Some(Duration::from_secs(given)));
        let _ = guard.release().await.expect("an answer");
    }
}

/// A user without the right is denied, one with a wrong password too, and no password is shown.
#[tokio::test]
async fn a_login_is_asked_for_and_never_shown() {
    let server = Etcd::start();
    for line in [
        "user add root:hunter2",
        "user grant-role root root",
        "user add app:hunter2",
        "role add locks",
        "role grant-permission locks --prefix=true readwrite app/",
        "user grant-role app locks",
        "auth enable",
    ] {
        let words: Vec<_> = line.split(' ').collect();
        if line == "user grant-role root root" {
            let _ = server.say(&["role", "add", "root"]);
        }
        let _ = server.say(&words);
    }
    let at = |login: &str, prefix: &str| {
        let address = server.address();
        let url = format!("etcd://{login}{address}?prefix={prefix}");
        async move { leasehold::connect(&url).await }
    };
    for (login, prefix) in [
        ("", "app/"),
        ("app:hunter3@", "app/"),
        ("app:hunter2@", "x/"),
    ] {
        let denied = at(login, prefix).await.expect_err("no right");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{login}: {denied}");
        assert!(!format!("{denied:?} {denied}").contains("hunter"));
    }
    let mine = at("app:hunter2@", "app/").await.expect("connected");
    let held = mine.mutex("x").lock().await.expect("free");
    assert!(!format!("{mine:?}").contains("hunter"));
    let other = at("app:hunter2@", "app/").await.expect("connected");
    assert!(other.mutex("x").try_lock().await.expect("a try").is_none());
    let _ = held.release().await.expect("released");
    drop(other.mutex("x").lock().await.expect("free"));
}

/// A server that cannot be reached is said to be so, and soon.
#[tokio::test]
async fn a_server_that_is_not_there_is_an_error() {
    let port = leasehold_testkit::servers::free_port();
    let options = ConnectOptions::new().lease(LEASE);
    let opened = options.connect(&format!("etcd://127.0.0.1:{port}")).await;
    let error = opened.expect_err("no server listens");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let address = format!("127.0.0.1:{port}");
    assert!(error.to_string().contains(&address), "{error}");
}

/// A name in use as one kind is refused as another, also by a try, and free again afterwards.
#[tokio::test]
async fn another_kind_is_refused_with_what_is_there() {
    let client = leasehold::connect(&one().url()).await.expect("connected");
    let other = leasehold::connect(&one().url()).await.expect("connected");
    let mutex = client.mutex("kind").lock().await.expect("free");
    for refused in [
        other.rwlock("kind").read().await.expect_err("a read lock"),
        other.rwlock("kind").try_write().await.expect_err("a try"),
        other
            .semaphore("kind", 2)
            .acquire()
            .await
            .expect_err("permits"),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        assert!(refused.to_string().contains("as a mutex"), "{refused}");
    }
    let _ = mutex.release().await.expect("released");
    let permit = client.semaphore("kind", 2).acquire().await.expect("free");
    for refused in [
        other.mutex("kind").lock().await.expect_err("a mutex"),
        other
            .semaphore("kind", 3)
            .acquire()
            .await
            .expect_err("another size"),
    ] {
        assert!(refused.to_string().contains('2'), "{refused}");
    }
    drop(permit);
}

/// A try that finds no room writes nothing at all.
#[tokio::test]
async fn a_try_leaves_nothing_behind() {
    let server = Etcd::start();
    let client = leasehold::connect(&server.url()).await.expect("connected");
    let other = leasehold::connect(&server.url()).await.expect("connected");
    let held = client.mutex("t").lock().await.expect("free");
    let before = server.revision();
    for _ in 0..3 {
        assert!(other.mutex("t").try_lock().await.expect("a try").is_none());
    }
    assert_eq!(server.revision(), before);
    drop(held);
}

/// Names with a slash and keys below a name are neighbours, not claims.
#[tokio::test]
async fn a_neighbour_below_a_name_is_not_in_its_way() {
    let (server, short) = (one(), Duration::from_secs(20));
    let plain = leasehold::connect(&server.url()).await.expect("connected");
    let below = format!("{}?prefix=near/", server.url());
    let below = leasehold::connect(&below).await.expect("connected");
    let _ = server.say(&["put", "near/config", "x"]);
    let neighbour = below.mutex("a").lock().await.expect("free");
    let slash = plain.mutex("near/a").lock().await.expect("free");
    let held = tokio::time::timeout(short, plain.mutex("near").lock()).await;
    let held = held.expect("not in the way").expect("free");
    let _ = held.release().await.expect("released");
    let tried = plain.mutex("near").try_lock().await.expect("a try");
    assert!(tried.is_some(), "free");
    let query = Query::name(Name::new("near").expect("a name"));
    let lines = plain.inspect(&query).await.expect("inspected");
    assert_eq!((lines.len(), lines[0].holders.len()), (1, 1));
    drop((neighbour, slash));
}

/// An RWMutex of Go does not exclude our locks: its name is refused.
#[tokio::test]
async fn a_lock_of_another_layout_is_refused() {
    let client = leasehold::connect(&one().url()).await.expect("connected");
    let _ = one().say(&["put", "foreign/write/1700000000000000000", ""]);
    let refused = client.mutex("foreign").lock().await.expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert!(refused.to_string().contains("RWMutex"), "{refused}");
    let left = one().keys("foreign/");
    assert_eq!(left, ["foreign/write/1700000000000000000"]);
}

/// Keys of other programs below the prefix, and below names: a look at all locks shows those that are.
#[tokio::test]
async fn foreign_keys_break_no_look_at_etcd() {
    use std::os::unix::ffi::OsStrExt;
    let url = format!("{}?prefix=strange/", one().url());
    let client = leasehold::connect(&url).await.expect("connected");
    let long = format!("leasehold/1 1 1 10000 0 7 {} c", "h".repeat(70_000));
    for (key, value) in [
        (&b"strange/"[..], &b"\xff"[..]),
        (b"strange/config", b"plain"),
        (b"strange//", b""),
        (b"strange/a/not-a-lease", b"\xff"),
        (b"strange/a/deep/er/still", b""),
        (b"strange/%zz/1", b""),
        (b"strange/\xff\xfe/1", b"\xff"),
        (b"strange/a/", b""),
        (b"strange/fat/694d7f1d3a0d4b07", long.as_bytes()),
        (b"strange/a/ffffffffffffffffffffffffffffffff", b""),
    ] {
        let [key, value] = [key, value].map(std::ffi::OsStr::from_bytes);
        let put = one().ctl().arg("put").args([key, value]).output();
        assert!(put.expect("it runs").status.success(), "{key:?}");
    }
    let guard = client.mutex("mine").lock().await.expect("free");
    let lines = client.inspect(&Query::all()).await.expect("seen");
    let mine = lines.iter().find(|line| line.name.as_str() == "mine");
    assert_eq!(mine.expect("shown").holders[0].fence, Some(guard.fence()));
    let _ = guard.release().await.expect("released");
}

/// Unknown options are named.
#[test]
fn an_option_that_is_not_known_is_refused() {
    let url = Url::parse("etcd://h?prefx=x").expect("a URL");
    let refused = Engine::from_url(&url).expect_err("no such option");
    assert!(refused.to_string().contains("prefix"), "{refused}");
}
