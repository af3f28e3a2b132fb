//! Two calls through the client crate that ours is made of, and nothing around them.

use ::redis::aio::MultiplexedConnection;
use leasehold_testkit::servers::redis::Redis;

use super::{ROUNDS, micros_each};
use crate::measure::{Outcome, Watch};

/// Scripts that do nothing.
pub(super) const NOTHING: [&str; 2] = ["return '1'", "return '2'"];

/// The least that is a lock with a lease and a fence of the server's time: the cost of a lock whatever the client does.
pub(super) const PLAIN_LOCK: [&str; 2] = [
    "local time = redis.call('TIME')
     if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', '30000') then return redis.error_reply('ERR not free') end
     return time[1] .. ' ' .. time[2]",
    "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return redis.error_reply('ERR not ours') end
     redis.call('DEL', KEYS[1])
     return '1'",
];

/// Two scripts, one after the other.
#[derive(Clone)]
pub(super) struct TwoCalls {
    conn: MultiplexedConnection,
    calls: [::redis::Cmd; 2],
}

impl TwoCalls {
    pub(super) async fn prepare(server: &Redis, texts: [&str; 2]) -> Outcome<Self> {
        let client = ::redis::Client::open(server.url())?;
        let mut conn = client.get_multiplexed_async_connection().await?;
        let mut calls = [::redis::Cmd::new(), ::redis::Cmd::new()];
        for (call, text) in calls.iter_mut().zip(texts) {
            let mut load = ::redis::cmd("SCRIPT");
            let digest: String = load.arg("LOAD").arg(text).query_async(&mut conn).await?;
            let _ = call.arg("EVALSHA").arg(digest).arg(1).arg("bare");
            if texts == PLAIN_LOCK {
                let _ = call.arg("0123456789abcdef0123456789abcdef");
            }
        }
        Ok(Self { conn, calls })
    }

    pub(super) async fn run(mut self) -> ::redis::RedisResult<f64> {
        let watch = Watch::start();
        for _ in 0..ROUNDS {
            for call in &self.calls {
                let _: String = call.query_async(&mut self.conn).await?;
            }
        }
        Ok(micros_each(watch))
    }
}
