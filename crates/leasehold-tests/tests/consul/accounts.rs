//! Tokens of Consul: what a token that may only read, that has other keys, or that has sessions alone can do to the locks.

use leasehold::engine::Query;
use leasehold::{Client, ConnectOptions, ErrorKind, GuardState, Name, Released, Result};
use leasehold_testkit::servers::consul::{Consul, ROOT_TOKEN};

pub(super) const SESSIONS: &str = r#"session_prefix "" { policy = "write" }"#;
pub(super) const SEES_SESSIONS: &str = r#"session_prefix "" { policy = "read" }"#;
const KEYS: &str = r#"key_prefix "locks/" { policy = "write" }"#;
const SEES_KEYS: &str = r#"key_prefix "locks/" { policy = "read" }"#;
const OTHER_KEYS: &str = r#"key_prefix "other/" { policy = "write" }"#;

/// A token with these rules.
pub(super) fn token(server: &Consul, number: u32, rules: &[&str]) -> String {
    let rules = rules.join(" ").replace('"', "\\\"");
    let policy = format!(r#"{{"Name": "p{number}", "Rules": "{rules}"}}"#);
    let _ = server.ask("PUT", "acl/policy", &policy).expect("a policy");
    let secret = format!("9f6a0f3e-0d3f-4b4f-8a8c-4a3f0b7a1c{number:02x}");
    let token = format!(r#"{{"SecretID": "{secret}", "Policies": [{{"Name": "p{number}"}}]}}"#);
    let _ = server.ask("PUT", "acl/token", &token).expect("a token");
    secret
}

async fn connect(server: &Consul, token: &str, prefix: &str) -> Result<Client> {
    let url = format!("consul://:{token}@{}/{prefix}", server.address());
    ConnectOptions::new().connect(&url).await
}

/// What the server answers to this token.
pub(super) fn say(
    server: &Consul,
    token: &str,
    method: &str,
    path: &str,
    body: &str,
) -> Result<String, String> {
    let more = if path.contains('?') { '&' } else { '?' };
    server.ask(method, &format!("{path}{more}token={token}"), body)
}

/// The key of the only claim.
fn claim(server: &Consul) -> String {
    let keys = server.ask("GET", "kv/locks/?keys", "").expect("root reads");
    let key = keys.split('"').find(|key| key.contains("/line/"));
    key.expect("a claim").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_reads_keys_sees_holders_and_changes_nothing() {
    let server = Consul::guarded();
    let mine = connect(&server, ROOT_TOKEN, "locks")
        .await
        .expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let (key, session) = (claim(&server), server.sessions()[0].clone());
    let reads = token(&server, 1, &[SEES_KEYS, SEES_SESSIONS]);
    let seen = say(&server, &reads, "GET", "kv/locks/?recurse", "");
    assert!(seen.expect("it may read").contains(&session));
    for (method, path, body) in [
        ("DELETE", format!("kv/{key}"), ""),
        ("DELETE", "kv/locks/?recurse".to_owned(), ""),
        ("PUT", format!("kv/{key}"), "__REVOKE__"),
        ("PUT", format!("kv/{key}?release={session}"), ""),
        ("PUT", format!("session/destroy/{session}"), ""),
        ("PUT", format!("session/renew/{session}"), ""),
        ("PUT", "session/create".to_owned(), "{}"),
    ] {
        let denied = say(&server, &reads, method, &path, body).expect_err("it may only read");
        assert!(denied.contains(" 403 "), "{path}: {denied}");
    }
    let denied = connect(&server, &reads, "locks")
        .await
        .expect_err("no client");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert_eq!(guard.state(), GuardState::Valid);
    assert_eq!(
        guard.release().await.expect("an answer"),
        Released::Released
    );
}

/// A token that does not exist, none (the anonymous token), and one for other keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_without_the_keys_neither_sees_nor_takes() {
    let server = Consul::guarded();
    let mine = connect(&server, ROOT_TOKEN, "locks")
        .await
        .expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let key = claim(&server);
    let other = token(&server, 2, &[OTHER_KEYS, SESSIONS]);
    for given in ["no-such-token", "anonymous", other.as_str()] {
        let read = say(&server, given, "GET", "kv/locks/?recurse", "");
        let nothing = read.as_ref().map_or(true, |seen| !seen.contains("/line/"));
        assert!(nothing, "{given}: {read:?}");
        let denied = say(&server, given, "DELETE", &format!("kv/{key}"), "");
        assert!(denied.is_err(), "{given}: {denied:?}");
    }
    let anonymous = format!("consul://{}/locks", server.address());
    for url in [
        anonymous,
        format!("consul://:{other}@{}/locks", server.address()),
    ] {
        let denied = ConnectOptions::new()
            .connect(&url)
            .await
            .expect_err("no right");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    }
    let own = connect(&server, &other, "other").await.expect("connected");
    drop(own.mutex("x").lock().await.expect("another lock"));
    assert_eq!(guard.state(), GuardState::Valid);
    assert_eq!(
        guard.release().await.expect("an answer"),
        Released::Released
    );
}

/// Rules for sessions name nodes, not keys: a token that may write sessions of a node may end all of them. The holder is
/// told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_writes_sessions_can_end_every_lock_and_fences_still_grow() {
    let server = Consul::guarded();
    let mine = connect(&server, ROOT_TOKEN, "locks")
        .await
        .expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let sessions = token(&server, 3, &[SESSIONS]);
    for session in server.sessions() {
        let path = format!("session/destroy/{session}");
        let _ = say(&server, &sessions, "PUT", &path, "").expect("it may");
    }
    let _why = guard.lost().await;
    assert_eq!(guard.state(), GuardState::Lost);
    let other = connect(&server, ROOT_TOKEN, "locks")
        .await
        .expect("connected");
    let next = other.mutex("x").lock().await.expect("free");
    assert!(next.fence() > guard.fence());
}

/// The rules of the documentation, for everything that a client does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_for_consul() {
    let server = Consul::guarded();
    let least = token(&server, 4, &[KEYS, SESSIONS]);
    let client = connect(&server, &least, "locks").await.expect("connected");
    let other = connect(&server, &least, "locks").await.expect("connected");
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
async fn a_token_that_writes_keys_can_take_a_lock_away_and_fences_still_grow() {
    let server = Consul::guarded();
    let mine = connect(&server, ROOT_TOKEN, "locks")
        .await
        .expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let writes = token(&server, 5, &[KEYS]);
    let path = format!("kv/{}", claim(&server));
    let _ = say(&server, &writes, "DELETE", &path, "").expect("it may");
    let _why = guard.lost().await;
    let next = mine.mutex("x").lock().await.expect("free");
    assert!(next.fence() > guard.fence());
}

/// An agent without access control lets every client do everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_access_control_every_client_of_consul_can_take_a_lock_away() {
    let server = Consul::start();
    let mine = connect(&server, "hunter2", "locks")
        .await
        .expect("connected");
    let guard = mine.mutex("x").lock().await.expect("free");
    let url = format!("consul://{}/locks", server.address());
    let other = ConnectOptions::new()
        .connect(&url)
        .await
        .expect("connected");
    assert_eq!(other.evict("x", "a test").await.expect("allowed"), 1);
    let why = guard.lost().await.to_string();
    assert!(why.contains("a test"), "{why}");
    let next = other.mutex("x").lock().await.expect("free");
    assert!(next.fence() > guard.fence());
}

/// Every claim reads its line: 20,000 keys are the most that it has to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_consul_has_an_end() {
    let server = Consul::start();
    let client = connect(&server, "", "locks").await.expect("connected");
    let guard = client.rwlock("x").read().await.expect("free");
    let room = claim(&server);
    let room = &room[..=room.rfind('/').expect("a room")];
    let session = server.sessions()[0].clone();
    // A reader's flags, as the layout has them.
    let flags = 0x6c68_0001_u64 << 32 | 1 << 24 | 1;
    for part in 0..313 {
        let locks = (0..64).map(|at| {
            let claim = part * 64 + at + 1;
            format!(
                r#"{{"KV": {{"Verb": "lock", "Key": "{room}{claim:032x}", "Flags": {flags}, "Value": "LQ==", "Session": "{session}"}}}}"#
            )
        });
        let locks: Vec<_> = locks.collect();
        let body = format!("[{}]", locks.join(","));
        let _ = server.ask("PUT", "txn", &body).expect("it may");
    }
    let other = connect(&server, "", "locks").await.expect("connected");
    let refused = other.rwlock("x").read().await.expect_err("one too many");
    assert!(refused.to_string().contains("20000 claims"), "{refused}");
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(
        other
            .rwlock("x")
            .try_write()
            .await
            .expect("an answer")
            .is_none()
    );
    drop(guard);
}

/// A server with a certificate of an authority that the client was not told to trust is not spoken to.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_consul_without_a_trusted_certificate_is_told_nothing() {
    let (server, stranger) = (Consul::tls(), Consul::tls());
    let (own, other) = (server.secured("/locks"), stranger.secured("/locks"));
    let authority = |url: &str| url.split_once("&ca=").expect("an authority").1.to_owned();
    let (right, wrong) = (authority(&own), authority(&other));
    for url in [
        own.replace(&format!("&ca={right}"), ""),
        own.replace(&format!("&ca={right}"), &format!("&ca={wrong}")),
    ] {
        let url = url.replace("://", "://:hunter2@");
        let refused = ConnectOptions::new().connect(&url).await;
        let error = refused.expect_err("not trusted").to_string();
        assert!(error.contains("invalid peer certificate"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    drop(ConnectOptions::new().connect(&own).await.expect("trusted"));
}
