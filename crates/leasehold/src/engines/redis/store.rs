//! Values in Redis, beside the lines.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

use super::client::{Call, Reply};
use super::config::Config;
use super::error::Trouble;
use super::keys::Bucket;
use super::own::Servers;
use crate::clock::micros;
use crate::engine::Url;
use crate::error::{Result, Step};
use crate::fence::{Fence, StaleFence};
use crate::name::Name;
use crate::store::{Entry, FENCE_KEPT, Fenced, LONGEST, Store};

const SCRIPT: &str = include_str!("store.lua");

/// How long a server that cannot now, or has not the key any more, is asked again.
const PAUSE: Duration = Duration::from_millis(25);

/// Values in Redis: a hash per key, changed by one script.
#[derive(Debug)]
struct RedisStore {
    servers: Arc<Servers>,
}

/// The store of a `redis:` URL.
pub(crate) fn store(url: &Url) -> Result<Arc<dyn Store>> {
    let servers = Servers::new(Config::of(url)?);
    Ok(Arc::new(RedisStore { servers }))
}

/// The script's answer: none if there is no value.
type Answer = Fenced<Option<Entry>>;

impl RedisStore {
    /// Runs the script where the key is. A run that the server refused was not done, and is asked for again elsewhere;
    /// one whose connection broke only if it may be `repeated`.
    async fn run(
        &self,
        key: &Name,
        words: &[&[u8]],
        repeated: bool,
    ) -> std::result::Result<Answer, Trouble> {
        let bucket = Bucket::of(key);
        let text = self.servers.config.keys.value(key);
        let head = Call::new("EVAL").arg(SCRIPT).arg("1").arg(text);
        let call = words.iter().fold(head, Call::arg);
        let (mut left, mut cut) = (self.servers.config.patience, false);
        loop {
            let server = self.servers.link_of_slot(bucket.slot()).await?;
            let sent = server.send(std::slice::from_ref(&call)).await;
            let reply = sent.and_then(|mut replies| replies.pop().unwrap_or(Reply::Nil).list());
            let trouble = match reply.and_then(|reply| answer(reply, words)) {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let broken = matches!(trouble, Trouble::Cut(_));
            let again = broken && repeated && !std::mem::replace(&mut cut, true);
            let elsewhere = async || self.servers.elsewhere(&server, bucket, &trouble).await;
            if !again && (left.is_zero() || !elsewhere().await) {
                return Err(trouble);
            }
            tokio::time::sleep(PAUSE).await;
            left = left.saturating_sub(PAUSE);
        }
    }
}

fn answer(reply: Vec<Reply>, words: &[&[u8]]) -> std::result::Result<Answer, Trouble> {
    let strange = || Trouble::strange(&reply);
    let fence = |reply: &Reply| -> std::result::Result<Fence, Trouble> {
        Ok(Fence::new(reply.clone().number()?))
    };
    let time = |reply: &Reply| -> std::result::Result<SystemTime, Trouble> {
        Ok(UNIX_EPOCH + Duration::from_micros(reply.clone().number()?))
    };
    let [word, rest @ ..] = reply.as_slice() else {
        return Err(strange());
    };
    match rest {
        [] if word.is(b"none") => Ok(Ok(None)),
        [seen] if word.is(b"stale") => {
            let shown = words.get(1).map_or(&[][..], |word| word);
            let shown = fence(&Reply::Text(shown.to_vec()))?;
            let seen = fence(seen)?;
            Ok(Err(StaleFence { shown, seen }))
        }
        [seen, Reply::Text(value), written, ends, now] if word.is(b"some") => {
            let ends = Some(ends).filter(|ends| **ends != Reply::Nil);
            let (ends, written, now) = (ends.map(time).transpose()?, time(written)?, time(now)?);
            let entry = Entry::new(value.clone(), fence(seen)?, written, ends, now);
            Ok(Ok(Some(entry)))
        }
        _ => Err(strange()),
    }
}

fn digits(fence: Fence) -> String {
    format!("{:020}", fence.get())
}

#[async_trait]
impl Store for RedisStore {
    async fn get(&self, key: &Name) -> Result<Option<Entry>> {
        let got = self.run(key, &[b"get"], true).await;
        // Nothing was changed, so nothing may have happened.
        let got = got.map_err(|trouble| trouble.at(Step::Inspect).of(key))?;
        Ok(got.unwrap_or(None))
    }

    async fn show(&self, key: &Name, fence: Fence) -> Result<Fenced<Option<Entry>>> {
        let (fence, kept) = (digits(fence), FENCE_KEPT.as_millis().to_string());
        let words: [&[u8]; 5] = [b"show", fence.as_bytes(), b"", b"", kept.as_bytes()];
        let shown = self.run(key, &words, true).await;
        shown.map_err(|trouble| trouble.at(Step::Store).of(key))
    }

    async fn put(
        &self,
        key: &Name,
        fence: Fence,
        value: Option<&[u8]>,
        keep: Option<Duration>,
    ) -> Result<Fenced<()>> {
        let (fence, kept) = (digits(fence), FENCE_KEPT.as_millis().to_string());
        let keep = keep.map_or_else(String::new, |keep| micros(keep.min(LONGEST)).to_string());
        let what: &[u8] = if value.is_some() { b"put" } else { b"remove" };
        let value = value.unwrap_or_default();
        let words = [
            what,
            fence.as_bytes(),
            value,
            keep.as_bytes(),
            kept.as_bytes(),
        ];
        let put = self.run(key, &words, false).await;
        let put = put.map_err(|trouble| trouble.at(Step::Store).of(key))?;
        Ok(put.map(drop))
    }

    fn location(&self) -> String {
        self.servers.config.location()
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod tests {
    use super::*;

    /// A list: a word for each line, and nil for an empty one.
    fn reply(text: &str) -> Vec<Reply> {
        let word = |word: &str| match (word, word.parse()) {
            ("", _) => Reply::Nil,
            (_, Ok(number)) => Reply::Number(number),
            _ => Reply::Text(word.into()),
        };
        text.split('\n').map(word).collect()
    }

    #[cfg_attr(test, test)]
    pub(crate) fn inputs_that_no_server_wrote() {
        let fuzz = crate::fuzz::Fuzz {
            name: "value",
            words: &[
                b"\n",
                b"none",
                b"stale",
                b"some",
                b"18446744073709551615",
                b"-1",
            ],
        };
        fuzz.run(&[], |input| {
            let words: [&[u8]; 2] = [b"show", b"00000000000000000007"];
            let answer = answer(reply(&String::from_utf8_lossy(input)), &words);
            match answer {
                Ok(Ok(Some(entry))) => {
                    let age = entry.age();
                    (3, age.is_zero(), entry.left().is_some())
                }
                Ok(Ok(None)) => (2, false, false),
                Ok(Err(stale)) => (1, stale.seen > stale.shown, false),
                Err(_) => (0, false, false),
            }
        });
    }
}
