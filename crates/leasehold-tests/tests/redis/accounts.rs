//! Accounts of a Redis server that may do less than a client: one that reads keys, one that hears and speaks on the channels,
//! and one that writes keys.

use std::time::Duration;

use leasehold::conformance::fresh_name;
use leasehold::{Client, ConnectOptions, ErrorKind, Guard, GuardState, Ran};
use leasehold_testkit::poll::eventually;
use leasehold_testkit::servers::redis::Redis;

const LEASE: Duration = Duration::from_millis(1_500);

fn account(server: &Redis, name: &str, rights: &str) -> redis::Connection {
    let rule = format!("ACL SETUSER {name} on >x resetchannels resetkeys {rights}");
    assert_eq!(server.cli(&rule).trim(), "OK");
    let url = format!("redis://{name}:x@127.0.0.1:{}", server.port);
    let client = redis::Client::open(url).expect("a URL");
    client.get_connection().expect("connected")
}

async fn client(server: &Redis) -> Client {
    let connected = ConnectOptions::new()
        .lease(LEASE)
        .connect(&server.url())
        .await;
    connected.expect("connected")
}

/// The guard is renewed twice, and still valid.
async fn goes_on(guard: &Guard) {
    for _ in 0..2 {
        let before = guard.deadline();
        eventually("it is renewed", async || match guard.deadline() > before {
            true => Ok(()),
            false => Err(format!("{:?}", guard.state())),
        })
        .await;
    }
    assert_eq!(guard.state(), GuardState::Valid);
}

/// The answer to a call that is not allowed.
fn refused(connection: &mut redis::Connection, words: &[&str]) {
    let mut call = redis::cmd(words[0]);
    for word in &words[1..] {
        let _ = call.arg(word);
    }
    let error = call.query::<redis::Value>(connection).expect_err(words[0]);
    assert_eq!(error.code(), Some("NOPERM"), "{words:?}: {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_reads_keys_sees_holders_and_changes_nothing() {
    let server = Redis::start();
    let mut reader = account(&server, "reader", "~lh:* +@read");
    let (client, name) = (client(&server).await, fresh_name());
    let guard = client.mutex(&name).lock().await.expect("free");
    let keys: Vec<String> = redis::cmd("SCAN")
        .arg(0)
        .arg("MATCH")
        .arg(format!("lh:*{name}"))
        .arg("COUNT")
        .arg(1000)
        .query::<(u64, Vec<String>)>(&mut reader)
        .expect("allowed")
        .1;
    let [key] = &keys[..] else {
        panic!("{keys:?}");
    };
    let stored: Vec<u8> = redis::cmd("GET").arg(key).query(&mut reader).expect("read");
    let host = leasehold::engine::Identity::of_this_process().host;
    assert!(String::from_utf8_lossy(&stored).contains(&host));
    for words in [
        &["DEL", key][..],
        &["PEXPIRE", key, "1"],
        &["PUBLISH", "lh:!x", "y"],
        &["SUBSCRIBE", "lh:!x"],
        &["EVAL", "return 1", "0"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["XADD", "lh:evictions", "*", "by", "me"],
    ] {
        refused(&mut reader, words);
    }
    let url = format!("redis://reader:x@127.0.0.1:{}", server.port);
    let denied = leasehold::connect(&url).await.expect_err("too few rights");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    goes_on(&guard).await;
}

/// On the channels it hears the id of a claim that is granted, and forges what it can of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_with_the_channels_alone_takes_no_guard() {
    let server = Redis::start();
    let mut ears = account(&server, "spy", "&lh:* +publish +psubscribe");
    let mut mouth = account(&server, "spy", "&lh:* +publish +psubscribe");
    let (client, name) = (client(&server).await, fresh_name());
    let strict = client.mutex(&name).strict();
    let first = strict.lock().await.expect("free");
    let waiter = tokio::spawn(async move { strict.lock().await });
    let query = leasehold::engine::Query::name(first.name().clone());
    eventually("it waits", async || {
        let lines = client.inspect(&query).await.expect("inspected");
        let waits = lines.first().is_some_and(|line| line.waiters.len() == 1);
        waits.then_some(()).ok_or(format!("{lines:?}"))
    })
    .await;
    let heard = tokio::task::spawn_blocking(move || {
        let mut ears = ears.as_pubsub();
        ears.psubscribe("lh:*").expect("allowed");
        let all = Some(Duration::from_secs(20));
        ears.set_read_timeout(all).expect("a time-out");
        let message = ears.get_message().expect("a message");
        let text: String = message.get_payload().expect("text");
        (message.get_channel_name().to_owned(), text)
    });
    eventually("the spy listens", async || {
        let listeners = server.cli("PUBSUB NUMPAT");
        (listeners.trim() == "1").then_some(()).ok_or(listeners)
    })
    .await;
    let _ = first.release().await.expect("released");
    let guard = waiter.await.expect("no panic").expect("granted");
    let (channel, grant) = heard.await.expect("heard");
    eventually("the spy has gone", async || {
        let listeners = server.cli("PUBSUB NUMPAT");
        (listeners.trim() == "0").then_some(()).ok_or(listeners)
    })
    .await;
    let words: Vec<_> = grant.split(' ').collect();
    let [_, id, session, ..] = words[..] else {
        panic!("{grant}");
    };
    for forged in [
        format!("X {id} {session}"),
        format!("E {id} {session} mallory because"),
        format!("G {id} {session} {} 0", i64::MAX),
        format!("W {id} {session}"),
    ] {
        let call = redis::cmd("PUBLISH").arg(&channel).arg(&forged).to_owned();
        assert_eq!(call.query::<i64>(&mut mouth).expect("allowed"), 1);
    }
    goes_on(&guard).await;
    assert!(guard.fence().get() < 1 << 53);
    refused(&mut mouth, &["GET", "lh:{00}:x"]);
}

/// An account that writes keys takes a lock away. The holder finds out, and the next fence is larger.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_writes_keys_can_take_a_lock_away_and_fences_still_grow() {
    let server = Redis::start();
    let mut writer = account(&server, "writer", "~lh:* +del");
    let (client, name) = (client(&server).await, fresh_name());
    let guard = client.mutex(&name).lock().await.expect("free");
    let keys = server.cli(&format!("KEYS lh:*{name}"));
    let deleted = redis::cmd("DEL").arg(keys.trim()).query::<i64>(&mut writer);
    assert_eq!(deleted.expect("allowed"), 1);
    let told = tokio::time::timeout(2 * LEASE, guard.lost()).await;
    drop(told.expect("the holder finds out"));
    let next = client.mutex(&name).lock().await.expect("free");
    assert!(next.fence() > guard.fence());
}

/// Without its colon a password would be a user, and no login would be sent: a server that lets everybody in would take it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_in_the_place_of_the_user_is_refused_and_not_shown() {
    let server = Redis::start();
    let url = server.url().replace("redis://", "redis://hunter2@");
    let refused = leasehold::connect(&url).await.expect_err("no login");
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
    let said = format!("{refused} {refused:?}");
    assert!(
        said.contains("redis://:PASSWORD@HOST") && !said.contains("hunter2"),
        "{said}"
    );
}

/// Values of a store are there for all who read keys, and say what those who write keys let them say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_reads_keys_sees_values_and_one_that_writes_them_forges_what_was_done() {
    let server = Redis::start();
    let mut reader = account(&server, "reader", "~lh:* +@read");
    let mut writer = account(&server, "writer", "~lh:* +hset");
    let client = client(&server).await;
    let once = client.once("mail:7", Duration::from_secs(600));
    let ran = once
        .run(async |_| Ok::<_, leasehold::Error>("sent to 8"))
        .await;
    assert!(matches!(ran, Ok(Ran::Done(_))), "{ran:?}");
    let keys = server.cli("--raw KEYS lh:{??}s*once:mail:7");
    let key = keys.trim();
    let value = redis::cmd("HGET").arg(key).arg("v").query(&mut reader);
    let value: String = value.expect("allowed");
    assert!(value.ends_with("sent to 8"), "{value}");
    refused(&mut reader, &["HSET", key, "v", "x"]);
    let forged = ["v", "done mallory\nnever"];
    let set: i64 = redis::cmd("HSET")
        .arg(key)
        .arg(&forged)
        .query(&mut writer)
        .expect("allowed");
    assert_eq!(set, 0, "no new field");
    let ran = once.run(async |_| Ok::<_, leasehold::Error>("")).await;
    match ran.expect("told") {
        Ran::AlreadyDone(done) => assert_eq!(done.by, "mallory"),
        other => panic!("{other:?}"),
    }
}
