#![doc = include_str!("docs.md")]

mod client;
mod config;
mod error;
mod fit;
mod inspect;
mod keys;
mod options;
mod own;
mod redisson;
#[cfg(feature = "redlock")]
pub(crate) mod redlock;
mod store;
mod words;

use std::sync::Arc;

pub use self::options::RedisOptions;
pub use self::own::Redis;
pub use self::redisson::Redisson;
pub(crate) use self::store::store;
#[cfg(fuzzing)]
pub(crate) use self::{
    client::fuzzed as resp, keys::tests as key, own::fuzzed as answer, store::tests as value,
};
use crate::engine::{Engine, Url};
use crate::error::Result;

/// The engine of a `redis:` URL.
pub(crate) fn open(url: &Url) -> Result<Arc<dyn Engine>> {
    match url.params().take("layout").as_deref() {
        Some("redisson") => Ok(Arc::new(Redisson::from_url(url)?)),
        _ => Ok(Arc::new(Redis::from_url(url)?)),
    }
}
