//! Crowds in Redisson's layout: one call does a bounded part of the work, and one name does not stop the server.

use std::time::Duration;

use leasehold::{Client, ConnectOptions};
use leasehold_testkit::servers::redis::Redis;

async fn client(server: &Redis, options: &str) -> Client {
    let url = format!("{}?layout=redisson{options}", server.url());
    let options = ConnectOptions::new().lease(Duration::from_secs(5));
    options.connect(&url).await.expect("connected")
}

/// A server with a crowd, and the seconds of work that it has done.
fn crowded(script: &str) -> (Redis, f64) {
    let server = Redis::start();
    let planted = server.cli_args(&["EVAL", script, "0"]);
    assert!(!planted.contains("ERR"), "{planted}");
    let worked = worked(&server);
    (server, worked)
}

/// Seconds of the processor's time, which other programs do not lengthen.
fn worked(server: &Redis) -> f64 {
    let info = server.cli("INFO cpu");
    let mut lines = info.lines();
    let user = lines.find_map(|line| line.strip_prefix("used_cpu_user:"));
    let user = user.expect("a time").trim().parse();
    user.expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_of_a_fair_lock_has_an_end() {
    let (server, before) = crowded(
        "local ends = (redis.call('TIME')[1] + 1000) * 1000
         redis.call('HSET', 'x', 'java:1', 1)
         redis.call('PEXPIRE', 'x', 100000)
         for i = 1, 20000 do
           redis.call('RPUSH', 'redisson_lock_queue:{x}', 'java:' .. i)
           redis.call('ZADD', 'redisson_lock_timeout:{x}', ends, 'java:' .. i)
         end",
    );
    let client = client(&server, "&lock=fair").await;
    let refused = client.mutex("x").lock().await.expect_err("one too many");
    assert!(refused.to_string().contains("20000 claims"), "{refused}");
    assert!(!refused.may_have_happened(), "{refused}");
    let tried = client.mutex("x").try_lock().await;
    assert!(tried.expect("an answer").is_none(), "a try has no place");
    let worked = worked(&server) - before;
    assert!(worked < 5.0, "{worked} s");
}

/// Every dead waiter moved all that were behind it: 6,000 times 6,000 steps in one script.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_of_dead_waiters_is_cleared_in_parts() {
    let (server, before) = crowded(
        "local ends = (redis.call('TIME')[1] + 1000) * 1000
         for i = 1, 6000 do
           redis.call('RPUSH', 'redisson_lock_queue:{x}', 'dead:' .. i)
           redis.call('ZADD', 'redisson_lock_timeout:{x}', ends, 'dead:' .. i)
           redis.call('HSET', 'leasehold_redisson:x', '?dead:' .. i, '1 1')
         end",
    );
    let client = client(&server, "&lock=fair").await;
    let mutex = client.mutex("x");
    let waiting = mutex.lock_within(Duration::from_secs(120));
    let guard = waiting.await.expect("an answer").expect("granted");
    let left = server.cli("LLEN redisson_lock_queue:{x}");
    assert_eq!(left.trim(), "0");
    let worked = worked(&server) - before;
    assert!(worked < 15.0, "{worked} s");
    let _ = guard.release().await.expect("released");
}

/// Every evicted reader made the script look at all the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_have_an_end_and_are_evicted_together() {
    let (server, before) = crowded(
        "redis.call('HSET', 'x', 'mode', 'read')
         redis.call('PEXPIRE', 'x', 100000)
         for i = 1, 19999 do
           redis.call('HSET', 'x', 'java:' .. i, 1)
           redis.call('SET', '{x}:java:' .. i .. ':rwlock_timeout:1', 1, 'PX', 100000)
         end",
    );
    let client = client(&server, "").await;
    let refused = client.rwlock("x").read().await.expect_err("one too many");
    assert!(refused.to_string().contains("20000 claims"), "{refused}");
    assert_eq!(client.evict("x", "a test").await.expect("evicted"), 19_999);
    drop(client.rwlock("x").write().await.expect("free"));
    let worked = worked(&server) - before;
    assert!(worked < 15.0, "{worked} s");
}
