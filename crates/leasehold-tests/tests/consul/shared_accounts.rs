//! Tokens of Consul and the locks of `consul lock`: the keys are the names themselves.

use std::time::Duration;

use leasehold::engine::Query;
use leasehold::{Client, ConnectOptions, ErrorKind, GuardState, Released, Result};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::servers::consul::{Consul, ROOT_TOKEN};

use super::accounts::{SEES_SESSIONS, SESSIONS, say, token};

const DOCS: &str = include_str!("../../../../docs/security.md");

const SEES_NAMES: &str = r#"key_prefix "web/" { policy = "read" }"#;
const NAMES: &str = r#"key_prefix "web/" { policy = "write" }"#;
const OURS: &str = r#"key_prefix "leasehold/" { policy = "write" }"#;

async fn connect(server: &Consul, token: &str) -> Result<Client> {
    let url = format!("consul://:{token}@{}?layout=consul", server.address());
    ConnectOptions::new().connect(&url).await
}

async fn holder(server: &Consul) -> (Client, leasehold::Guard) {
    let client = connect(server, ROOT_TOKEN).await.expect("connected");
    let guard = client.mutex("web/x").lock().await.expect("free");
    (client, guard)
}

/// The rules of the documentation, for names below `web/`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_are_enough_for_consuls_layout() {
    for rule in [NAMES, OURS, SESSIONS] {
        assert!(DOCS.contains(rule), "docs/security.md says {rule}");
    }
    let server = Consul::guarded();
    // Without the rule for the name the denial says which is missing.
    let less = token(&server, 1, &[OURS, SESSIONS]);
    let less = connect(&server, &less).await.expect("connected");
    let denied = less.mutex("web/x").lock().await.expect_err("no right");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert!(
        denied.to_string().contains(r#"key_prefix "NAME""#),
        "{denied}"
    );
    let app = token(&server, 2, &[NAMES, OURS, SESSIONS]);
    let app = connect(&server, &app).await.expect("connected");
    let guard = app.mutex("web/x").lock().await.expect("free");
    let name = leasehold::Name::new("web/x").expect("a name");
    for query in [Query::all(), Query::name(name)] {
        let lines = app.inspect(&query).await.expect("allowed");
        assert_eq!((lines.len(), lines[0].holders.len()), (1, 1), "{lines:?}");
    }
    assert_eq!(app.evict("web/x", "a test").await.expect("allowed"), 1);
    let _ = guard.lost().await;
    drop(app.semaphore("web/s", 2).acquire().await.expect("free"));
}

/// Without its colon a token would be a user, which Consul does not know, and its owner would be anonymous.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_in_the_place_of_the_user_is_refused_and_not_shown() {
    let server = Consul::guarded();
    for options in ["/locks", "?layout=consul"] {
        let url = format!("consul://{ROOT_TOKEN}@{}{options}", server.address());
        let refused = leasehold::connect(&url).await.expect_err("no token");
        assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
        let said = format!("{refused} {refused:?}");
        assert!(said.contains("consul://:TOKEN@HOST"), "{said}");
        assert!(!said.contains(ROOT_TOKEN), "{said}");
        let shown = leasehold::engine::Url::parse(&url).expect("a URL");
        assert!(!format!("{shown} {shown:?}").contains(ROOT_TOKEN));
    }
}

/// One that reads, one for other names, and one that does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_without_the_names_takes_nothing_in_consuls_layout() {
    let server = Consul::guarded();
    let (_mine, guard) = holder(&server).await;
    let session = server.holder("web/x/.lock").expect("held");
    let reads = token(&server, 3, &[SEES_NAMES, SEES_SESSIONS]);
    let seen = say(&server, &reads, "GET", "kv/web/x/.lock", "");
    assert!(seen.expect("it may read").contains(&session));
    let others = token(&server, 4, &[OURS, SEES_SESSIONS]);
    for given in [reads.as_str(), others.as_str(), "no-such-token"] {
        for (method, path) in [
            ("DELETE", "kv/web/x/.lock".to_owned()),
            ("PUT", "kv/web/x/.lock".to_owned()),
            ("PUT", format!("kv/web/x/.lock?release={session}")),
            ("PUT", format!("session/destroy/{session}")),
        ] {
            let denied = say(&server, given, method, &path, "");
            assert!(denied.is_err(), "{given} {path}: {denied:?}");
        }
    }
    assert_eq!(guard.state(), GuardState::Valid);
    assert_eq!(
        guard.release().await.expect("an answer"),
        Released::Released
    );
}

/// One that writes sessions ends the holder's; one that writes names deletes the key. Both are told, and fences still grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_writes_sessions_or_names_ends_locks_of_consuls_layout() {
    let server = Consul::guarded();
    let sessions = token(&server, 5, &[SESSIONS]);
    let names = token(&server, 6, &[NAMES]);
    let mut last = None;
    for writes_names in [false, true] {
        let (_mine, guard) = holder(&server).await;
        assert!(Some(guard.fence()) > last, "{last:?}");
        last = Some(guard.fence());
        let session = server.holder("web/x/.lock").expect("held");
        let done = match writes_names {
            true => say(&server, &names, "DELETE", "kv/web/x/.lock", ""),
            false => say(
                &server,
                &sessions,
                "PUT",
                &format!("session/destroy/{session}"),
                "",
            ),
        };
        let _ = done.expect("it may");
        let told = tokio::time::timeout(Duration::from_secs(60), guard.lost()).await;
        let _ = told.expect("the holder is told");
    }
    let (_mine, guard) = holder(&server).await;
    assert!(Some(guard.fence()) > last, "{last:?}");
}

/// An agent takes 200 connections of one address unless it is told otherwise, and each lock of this layout keeps one. One
/// lock more is refused, those that are held are renewed, and another client has room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_consuls_layout_have_an_end_that_leaves_room_for_renewals() {
    const MOST: usize = 128;
    let server = Consul::with_defaults();
    let url = format!("{}?layout=consul", server.url());
    let client = leasehold::connect(&url).await.expect("connected");
    let mut guards = Vec::new();
    for at in 0..MOST {
        let guard = client.mutex(format!("n{at}")).lock().await;
        guards.push(guard.unwrap_or_else(|error| panic!("{at}: {error}")));
    }
    let refused = client.mutex("more").lock().await.expect_err("no room");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let said = refused.to_string();
    assert!(
        said.contains("http_max_conns_per_client") && said.contains("locks=N"),
        "{said}"
    );
    assert!(client.semaphore("s", 2).try_acquire().await.is_err());
    let before: Vec<_> = guards.iter().map(leasehold::Guard::deadline).collect();
    eventually("all are renewed", async || {
        let late = guards.iter().zip(&before);
        let late = late.filter(|(guard, before)| guard.deadline() <= **before);
        match late.count() {
            0 => Ok(()),
            late => Err(format!("{late} are not")),
        }
    })
    .await;
    assert!(
        guards
            .iter()
            .all(|guard| guard.state() == GuardState::Valid)
    );
    // A wait for a name that this client holds costs nothing; a release makes room.
    assert!(
        client
            .mutex("n0")
            .try_lock()
            .await
            .expect("a try")
            .is_none()
    );
    let freed = guards.pop().expect("one").release().await;
    assert_eq!(freed.expect("an answer"), Released::Released);
    drop(client.mutex("more").lock().await.expect("room again"));
    let other = leasehold::connect(&url).await.expect("connected");
    assert_eq!(
        other.inspect(&Query::all()).await.expect("seen").len(),
        MOST - 1
    );
}
