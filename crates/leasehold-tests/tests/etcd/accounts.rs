//! Users of etcd: what an account that may only read, that has other keys, or that has no login can do to the locks.

use std::io::Write;
use std::process::Stdio;

use leasehold::engine::Query;
use leasehold::{Client, ConnectOptions, ErrorKind, Guard, GuardState, Name, Released, Result};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::servers::etcd::Etcd;

const ROOT: &str = "root:hunter2";
const APP: &str = "app:hunter2";
/// May read the keys of the locks.
const READER: &str = "reader:hunter2";
/// May do everything to keys of its own.
const OTHER: &str = "other:hunter2";

/// A server with logins, and a role for each of the users above.
fn guarded() -> Etcd {
    let server = Etcd::start();
    guard(&server);
    server
}

fn guard(server: &Etcd) {
    for line in [
        "role add root",
        "user add root:hunter2",
        "user grant-role root root",
        "role add locks",
        "role grant-permission locks --prefix=true readwrite locks/",
        "role add watch",
        "role grant-permission watch --prefix=true read locks/",
        "role add elsewhere",
        "role grant-permission elsewhere --prefix=true readwrite other/",
        "user add app:hunter2",
        "user add reader:hunter2",
        "user add other:hunter2",
        "user grant-role app locks",
        "user grant-role reader watch",
        "user grant-role other elsewhere",
        "auth enable",
    ] {
        let _ = server.say(&line.split(' ').collect::<Vec<_>>());
    }
}

/// Waits until a guard was renewed so often.
async fn renewed(guard: &Guard, times: u32) {
    for _ in 0..times {
        let before = guard.deadline();
        eventually("the lock is renewed", async || {
            guard.check().map_err(|error| error.to_string())?;
            match guard.deadline() > before {
                true => Ok(()),
                false => Err(format!("{:?}", guard.state())),
            }
        })
        .await;
    }
}

async fn connect(server: &Etcd, login: &str, prefix: &str) -> Result<Client> {
    let url = format!("etcd://{login}@{}?prefix={prefix}", server.address());
    ConnectOptions::new().connect(&url).await
}

/// What `etcdctl` answers to a user, or to no login.
fn say(server: &Etcd, login: &str, args: &[&str]) -> Result<String, String> {
    let mut ctl = server.ctl();
    let _ = ctl.arg("--command-timeout=2s");
    if !login.is_empty() {
        let _ = ctl.args(["--user", login]);
    }
    let done = ctl.args(args).output().expect("etcdctl runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match done.status.success() {
        true => Ok(text(&done.stdout)),
        false => Err(text(&done.stderr)),
    }
}

/// The lease of the holder of a name, as etcdctl writes it.
fn lease_of(server: &Etcd, room: &str) -> String {
    let keys = say(server, ROOT, &["get", room, "--prefix", "--keys-only"]).expect("root reads");
    let key = keys.lines().next().expect("a claim");
    let key = key.strip_prefix(room).expect("of this room");
    key.split('-').next().expect("a lease").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_of_etcd_that_reads_keys_sees_holders_and_changes_nothing() {
    let server = guarded();
    let mine = connect(&server, APP, "locks/").await.expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let seen = say(&server, READER, &["get", "locks/x/", "--prefix"]).expect("it may read");
    assert!(seen.contains("leasehold/1"), "{seen}");
    let key = seen.lines().next().expect("a key").to_owned();
    let lease = lease_of(&server, "locks/x/");
    for args in [
        &["del", key.as_str()][..],
        &["put", key.as_str(), "__REVOKE__"],
        &["put", "locks/x/1-lock-1", ""],
        &["lease", "revoke", lease.as_str()],
    ] {
        let denied = say(&server, READER, args).expect_err("it may only read");
        assert!(denied.contains("permission denied"), "{args:?}: {denied}");
    }
    let denied = connect(&server, READER, "locks/")
        .await
        .expect_err("no client");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert_eq!(guard.state(), GuardState::Valid);
    assert_eq!(
        guard.release().await.expect("an answer"),
        Released::Released
    );
}

/// Also a client without a login. Leases of etcd belong to no user: their ids are listed to every login.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_of_etcd_with_other_keys_neither_sees_nor_takes() {
    let server = guarded();
    let mine = connect(&server, APP, "locks/").await.expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let lease = lease_of(&server, "locks/x/");
    for login in [OTHER, ""] {
        for args in [
            &["get", "locks/", "--prefix"][..],
            &["get", "", "--prefix"],
            &["del", "locks/", "--prefix"],
            &["put", "locks/x/1-lock-1", ""],
            &["lease", "revoke", lease.as_str()],
        ] {
            let denied = say(&server, login, args).expect_err("no right");
            assert!(!denied.contains("hunter2"), "{denied}");
        }
    }
    for prefix in ["locks/", ""] {
        let denied = connect(&server, OTHER, prefix).await.expect_err("no right");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    }
    let listed = say(&server, OTHER, &["lease", "list"]).expect("every login may");
    assert!(listed.contains(&lease), "{listed}");
    // It can keep a lease alive that is not its own, and so the lock of a process that died.
    let kept = say(&server, OTHER, &["lease", "keep-alive", "--once", &lease]);
    assert!(kept.is_ok(), "{kept:?}");
    let own = connect(&server, OTHER, "other/").await.expect("connected");
    drop(own.mutex("x").lock().await.expect("another lock"));
    assert_eq!(guard.state(), GuardState::Valid);
    assert_eq!(
        guard.release().await.expect("an answer"),
        Released::Released
    );
}

/// The role of the documentation, for everything that a client does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_for_etcd() {
    let server = guarded();
    let client = connect(&server, APP, "locks/").await.expect("connected");
    let other = connect(&server, APP, "locks/").await.expect("connected");
    let writer = client.rwlock("rw").write().await.expect("free");
    let reader = writer.downgrade().await.expect("goes on");
    drop(other.rwlock("rw").read().await.expect("shared"));
    let permits = client.semaphore("s", 3).acquire_many(2).await;
    let permits = permits.expect("free");
    let guard = client.mutex("x").lock().await.expect("free");
    assert!(other.mutex("x").try_lock().await.expect("a try").is_none());
    let query = Query::name(Name::new("x").expect("a name"));
    assert_eq!(other.inspect(&query).await.expect("seen").len(), 1);
    assert_eq!(other.inspect(&Query::all()).await.expect("seen").len(), 3);
    assert_eq!(other.ask_to_release("x").await.expect("asked"), 1);
    assert_eq!(other.evict("x", "a test").await.expect("evicted"), 1);
    let why = guard.lost().await.to_string();
    assert!(why.contains("a test"), "{why}");
    drop((reader, permits));
}

/// An account that writes keys takes locks away without a word; the holder is told, and fences grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_of_etcd_that_writes_keys_can_take_a_lock_away_and_fences_still_grow() {
    let server = guarded();
    let mine = connect(&server, APP, "locks/").await.expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let _ = say(&server, APP, &["del", "locks/x/", "--prefix"]).expect("a client may");
    let _why = guard.lost().await;
    assert_eq!(guard.state(), GuardState::Lost);
    let next = mine.mutex("x").lock().await.expect("free");
    assert!(next.fence() > guard.fence());
}

/// A server without logins lets every client do everything, also one that gives a login.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_logins_every_client_of_etcd_can_take_a_lock_away() {
    let server = Etcd::start();
    let mine = connect(&server, "me:hunter2", "").await.expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let other = ConnectOptions::new()
        .connect(&server.url())
        .await
        .expect("connected");
    assert_eq!(other.evict("x", "a test").await.expect("allowed"), 1);
    let why = guard.lost().await.to_string();
    assert!(why.contains("a test"), "{why}");
    let next = other.mutex("x").lock().await.expect("free");
    assert!(next.fence() > guard.fence());
}

/// A right that is taken away while the lock is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_taken_away_at_etcd_are_told() {
    let server = guarded();
    let mine = connect(&server, APP, "locks/").await.expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let _ = say(&server, ROOT, &["user", "revoke-role", "app", "locks"]).expect("root may");
    eventually("claims are denied", async || {
        match mine.mutex("y").try_lock().await {
            Err(error) if error.kind() == ErrorKind::Denied => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    drop(guard);
}

/// Every claim reads its line: 20,000 keys are the most that it has to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_etcd_has_an_end() {
    let server = Etcd::start();
    let said = server.say(&["lease", "grant", "600"]);
    let lease = said.split(' ').nth(1).expect("a lease").to_owned();
    for part in 0..200 {
        let puts = (0..100).map(|at| {
            let claim = part * 100 + at + 1;
            format!("put x/{lease}-read-{claim:032x} - --lease={lease}\n")
        });
        let puts: String = puts.collect();
        let mut ctl = server.ctl();
        let ctl = ctl.arg("txn").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut running = ctl.spawn().expect("etcdctl runs");
        let mut input = running.stdin.take().expect("piped");
        input
            .write_all(format!("\n{puts}\n\n").as_bytes())
            .expect("taken");
        drop(input);
        assert!(running.wait().expect("ends").success());
    }
    let client = ConnectOptions::new()
        .connect(&server.url())
        .await
        .expect("connected");
    let refused = client.rwlock("x").read().await.expect_err("one too many");
    assert!(refused.to_string().contains("20000 claims"), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    let busy = client.rwlock("x").try_write().await.expect("an answer");
    assert!(busy.is_none());
    assert_eq!(server.keys("x/").len(), 20_000, "it left no key");
}

/// A server with a certificate of an authority that the client was not told to trust is not spoken to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_of_etcd_without_a_trusted_certificate_is_told_nothing() {
    let (server, stranger) = (Etcd::tls(), Etcd::tls());
    let own = server.url();
    let (place, options) = own.split_once('?').expect("options");
    let authority = |url: &str| {
        let (_, options) = url.split_once('?').expect("options");
        let ca = options.split('&').find(|option| option.starts_with("ca="));
        ca.expect("an authority").to_owned()
    };
    let (right, wrong) = (authority(&own), authority(&stranger.url()));
    let place = place.replace("://", "://me:hunter2@");
    for options in [
        options.replace(&format!("{right}&"), ""),
        options.replace(&right, &wrong),
    ] {
        let refused = ConnectOptions::new()
            .connect(&format!("{place}?{options}"))
            .await;
        let error = refused.expect_err("not trusted").to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    drop(ConnectOptions::new().connect(&own).await.expect("trusted"));
}

/// A web token is of one state of the users: after any change the client logs in again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_etcd_may_change_under_a_held_lock() {
    let server = Etcd::with_web_tokens();
    guard(&server);
    let client = connect(&server, APP, "locks/").await.expect("connected");
    let lease = std::time::Duration::from_secs(2);
    let mutex = client.mutex("steady").lease(lease);
    let held = mutex.lock().await.expect("free");
    for user in ["one:x", "two:x"] {
        let _ = say(&server, ROOT, &["user", "add", user]).expect("root may");
        renewed(&held, 3).await;
        let other = client.mutex("other").lock().await.expect("free");
        assert_eq!(other.release().await.expect("released"), Released::Released);
    }
    assert_eq!(held.state(), GuardState::Valid);
    assert_eq!(held.release().await.expect("released"), Released::Released);
    let again = mutex.try_lock().await.expect("a try");
    assert!(again.is_some(), "it was given back");
}

/// A token ends after two seconds, whether it is used or not (web tokens) or once it is not used (simple ones).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_etcd_that_run_out_are_renewed() {
    let lease = std::time::Duration::from_secs(6);
    for server in [Etcd::with_short_web_tokens(), Etcd::with_short_tokens()] {
        guard(&server);
        let client = connect(&server, APP, "locks/").await.expect("connected");
        let mutex = client.mutex("steady").lease(lease);
        let held = mutex.lock().await.expect("free");
        // A heartbeat every two seconds: each finds that the token may have ended.
        renewed(&held, 4).await;
        let other = client.mutex("other").lock().await.expect("free");
        assert_eq!(other.release().await.expect("released"), Released::Released);
        assert_eq!(held.state(), GuardState::Valid);
        assert_eq!(held.release().await.expect("released"), Released::Released);
    }
}

/// A client that has a login shows it again when logins are switched on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_of_etcd_may_be_switched_on_under_a_held_lock() {
    let server = Etcd::start();
    let client = connect(&server, APP, "locks/").await.expect("connected");
    let lease = std::time::Duration::from_secs(2);
    let mutex = client.mutex("steady").lease(lease);
    let held = mutex.lock().await.expect("free");
    guard(&server);
    renewed(&held, 3).await;
    assert_eq!(held.release().await.expect("released"), Released::Released);
    let again = mutex.try_lock().await.expect("a try");
    assert!(again.is_some(), "it was given back");
}

/// A lock that could not be given back for want of rights is free once they are there again, and the process lives on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_of_etcd_whose_release_was_denied_does_not_stay() {
    let server = guarded();
    let client = connect(&server, APP, "locks/").await.expect("connected");
    let lease = std::time::Duration::from_secs(2);
    let mutex = client.mutex("stuck").lease(lease);
    let held = mutex.lock().await.expect("free");
    let _ = say(&server, ROOT, &["user", "revoke-role", "app", "locks"]).expect("root may");
    let denied = held.release().await.expect_err("no right to delete");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    let _ = say(&server, ROOT, &["user", "grant-role", "app", "locks"]).expect("root may");
    let other = connect(&server, APP, "locks/").await.expect("connected");
    eventually("the lock is free again", async || {
        let tried = other.mutex("stuck").try_lock().await;
        let tried = tried.map_err(|error| error.to_string())?;
        tried.map(drop).ok_or_else(|| "busy".to_owned())
    })
    .await;
}
