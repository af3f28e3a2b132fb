//! The pieces in Redis: a hash for each item, with what is left, what was sold, and the last fence.

use leasehold::Fence;
use redis::aio::MultiplexedConnection;
use redis::cmd;

use crate::answer::{Answer, Outcome};
use crate::app::Failed;
use crate::ways::Work;

/// The pieces in Redis.
#[derive(Debug, Clone)]
pub struct Stock(MultiplexedConnection);

/// What the books say of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Books {
    /// Pieces that are left.
    pub left: i64,
    /// Pieces that were sold.
    pub sold: i64,
}

/// Shows a fence, and with a number also writes that many as left, and one sale: none if a later fence was here.
const FENCED: &str = "
local shown, seen = ARGV[1], redis.call('HGET', KEYS[1], 'fence') or '0'
if #shown < #seen or (#shown == #seen and shown < seen) then return false end
redis.call('HSET', KEYS[1], 'fence', shown)
if ARGV[2] then
  redis.call('HSET', KEYS[1], 'left', ARGV[2])
  redis.call('HINCRBY', KEYS[1], 'sold', 1)
end
return redis.call('HGET', KEYS[1], 'left')";

/// Deletes a key if it has this value.
const DELETE_IF: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

fn key(item: u64) -> String {
    format!("shop:item:{item}")
}

impl Stock {
    /// Connects.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn open(url: &str) -> Result<Self, Failed> {
        let client = redis::Client::open(url)?;
        Ok(Self(client.get_multiplexed_async_connection().await?))
    }

    /// Reads, thinks, writes: what every lock around it has to protect.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn sell(&self, work: &Work<'_>) -> Outcome<Answer> {
        let mut redis = self.0.clone();
        let read = cmd("HGET").arg(key(work.item)).arg("left").to_owned();
        let left: i64 = read.query_async(&mut redis).await?;
        if left <= 0 {
            return Ok(Answer::SoldOut);
        }
        work.think().await?;
        let mut write = redis::pipe();
        let _ = write.atomic();
        let _ = write.hset(key(work.item), "left", left - 1).ignore();
        let _ = write.hincr(key(work.item), "sold", 1).ignore();
        let () = write.query_async(&mut redis).await?;
        Ok(Answer::Sold)
    }

    /// The same under a lock with fences: a holder that comes late is refused.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn sell_fenced(&self, work: &Work<'_>, fence: Fence) -> Outcome<Answer> {
        // Before the first read: a fence protects from when it was seen.
        let Some(left) = self.fenced(work.item, fence, None).await? else {
            return Ok(Answer::Late);
        };
        if left <= 0 {
            return Ok(Answer::SoldOut);
        }
        work.think().await?;
        match self.fenced(work.item, fence, Some(left - 1)).await? {
            Some(_) => Ok(Answer::Sold),
            None => Ok(Answer::Late),
        }
    }

    async fn fenced(&self, item: u64, fence: Fence, left: Option<i64>) -> Outcome<Option<i64>> {
        let mut eval = cmd("EVAL");
        let _ = eval.arg(FENCED).arg(1).arg(key(item)).arg(fence.get());
        if let Some(left) = left {
            let _ = eval.arg(left);
        }
        Ok(eval.query_async(&mut self.0.clone()).await?)
    }

    /// Writes down one sale of pieces that are counted elsewhere.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn note_sale(&self, item: u64) -> Outcome<()> {
        let mut redis = self.0.clone();
        let (key, mut add) = (key(item), cmd("HINCRBY"));
        Ok(add
            .arg(key)
            .arg("sold")
            .arg(1)
            .exec_async(&mut redis)
            .await?)
    }

    /// Puts so many pieces there, none of them sold.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn fill(&self, item: u64, left: i64) -> Outcome<()> {
        let (mut redis, mut fill) = (self.0.clone(), redis::pipe());
        let _ = fill.atomic().del(key(item)).ignore();
        let fields = [("left", left), ("sold", 0)];
        let _ = fill.hset_multiple(key(item), &fields).ignore();
        Ok(fill.query_async(&mut redis).await?)
    }

    /// What is left and what was sold.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn books(&self, item: u64) -> Outcome<Books> {
        let (mut redis, mut read) = (self.0.clone(), cmd("HMGET"));
        let _ = read.arg(key(item)).arg("left").arg("sold");
        let (left, sold) = read.query_async(&mut redis).await?;
        Ok(Books { left, sold })
    }

    /// Sets a key to a value unless it is there, and whether it was not; with an expiry in milliseconds if there is one.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn set_nx(&self, key: &str, value: &str, expiry: Option<u64>) -> Outcome<bool> {
        let mut set = cmd("SET");
        let _ = set.arg(key).arg(value).arg("NX");
        if let Some(millis) = expiry {
            let _ = set.arg("PX").arg(millis);
        }
        let done: Option<String> = set.query_async(&mut self.0.clone()).await?;
        Ok(done.is_some())
    }

    /// Sets when a key ends.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn expire(&self, key: &str, millis: u64) -> Outcome<()> {
        let (mut redis, mut expire) = (self.0.clone(), cmd("PEXPIRE"));
        Ok(expire.arg(key).arg(millis).exec_async(&mut redis).await?)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn get(&self, key: &str) -> Outcome<Option<String>> {
        Ok(cmd("GET").arg(key).query_async(&mut self.0.clone()).await?)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn delete(&self, key: &str) -> Outcome<()> {
        Ok(cmd("DEL").arg(key).exec_async(&mut self.0.clone()).await?)
    }

    /// Deletes a key if it has this value, in one step.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn delete_if(&self, key: &str, value: &str) -> Outcome<()> {
        let (mut redis, mut eval) = (self.0.clone(), cmd("EVAL"));
        let _ = eval.arg(DELETE_IF).arg(1).arg(key).arg(value);
        Ok(eval.exec_async(&mut redis).await?)
    }

    /// Sets a mark.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn set(&self, mark: &str) -> Outcome<()> {
        let (mut redis, mut set) = (self.0.clone(), cmd("SET"));
        Ok(set.arg(mark).arg(1).exec_async(&mut redis).await?)
    }

    /// Whether a mark is set.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn is_set(&self, mark: &str) -> Outcome<bool> {
        Ok(self.get(mark).await?.is_some())
    }

    /// Puts the parts of a packet there.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn fill_packet(&self, packet: u64, parts: &[u64]) -> Outcome<()> {
        let (mut redis, mut push) = (self.0.clone(), cmd("RPUSH"));
        let push = push.arg(format!("shop:packet:{packet}")).arg(parts);
        Ok(push.exec_async(&mut redis).await?)
    }

    /// Takes the next part of a packet, if there is one.
    ///
    /// # Errors
    /// Those of Redis.
    pub async fn next_part(&self, packet: u64) -> Outcome<Option<u64>> {
        let (mut redis, mut pop) = (self.0.clone(), cmd("LPOP"));
        let pop = pop.arg(format!("shop:packet:{packet}"));
        Ok(pop.query_async(&mut redis).await?)
    }
}
