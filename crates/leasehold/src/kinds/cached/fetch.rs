//! From the store, or loaded under the lock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::local::Held;
use super::{Cached, LoadError};
use crate::clock::{Micros, micros};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::guard::Guard;
use crate::store::{self, Entry};

/// The store has a line before the JSON: one of these words and the ttl in milliseconds.
const VALUE: &str = "value";
const NOTHING: &str = "nothing";

impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Cached<T> {
    /// What the store has, also if it is to be reloaded; what the load brings if there is nothing.
    pub(super) async fn fetch<E, F>(&self, load: &mut Option<F>) -> Result<Held<T>, LoadError<E>>
    where
        F: AsyncFnOnce() -> Result<Option<T>, E>,
    {
        if let Some(found) = self.find(None).await? {
            return Ok(found);
        }
        let guard = self.lock().lock().await?;
        let load = load.take().expect("a request loads once");
        self.load_under(guard, None, load).await
    }

    /// What the store has now instead of what this process holds, reloaded if it is too old.
    pub(super) async fn look_again<E, F>(
        &self,
        held: &Held<T>,
        load: F,
    ) -> Result<Held<T>, LoadError<E>>
    where
        F: AsyncFnOnce() -> Result<Option<T>, E>,
    {
        match self.find(Some(held)).await {
            Ok(Some(found)) if found.is_due(self.layer.now()) => self.reload(&found, load).await,
            Ok(Some(found)) => Ok(found),
            Ok(None) => self.fetch(&mut Some(load)).await,
            Err(error) => {
                let (now, local) = (self.layer.now(), self.settings.local);
                let later = held.later(now, held.gone, local);
                let told = later.ok_or_else(|| error.again())?;
                tracing::warn!(%error, name = self.key.name(), "what this process holds is told");
                Ok(told)
            }
        }
    }

    /// Loads instead of a value that is too old, if no other process does. If the load fails the old value is told to its end.
    pub(super) async fn reload<E, F>(
        &self,
        found: &Held<T>,
        load: F,
    ) -> Result<Held<T>, LoadError<E>>
    where
        F: AsyncFnOnce() -> Result<Option<T>, E>,
    {
        let local = self.settings.local;
        let reloaded = match self.lock().try_lock().await {
            Ok(Some(guard)) => self.load_under(guard, found.written, load).await,
            Ok(None) => return Ok(found.as_it_is(local)),
            Err(error) => Err(error.into()),
        };
        reloaded.or_else(|failed| {
            let later = found.later(self.layer.now(), found.end, local);
            let Some(later) = later else {
                return Err(failed);
            };
            self.warn(&failed, "a reload failed: the old value is told");
            Ok(later)
        })
    }

    async fn find(&self, before: Option<&Held<T>>) -> Result<Option<Held<T>>> {
        self.check()?;
        let (store, lock) = (self.client.store()?, self.lock());
        Ok(match lock.name() {
            Some(name) => self.read(store.get(name).await?, before),
            // The lock says what is wrong with the name.
            None => None,
        })
    }

    /// Loads and writes, unless another one did so before this guard: then the store has another value than the one that was
    /// `judged` to be too old.
    async fn load_under<E, F>(
        &self,
        guard: Guard,
        judged: Option<SystemTime>,
        load: F,
    ) -> Result<Held<T>, LoadError<E>>
    where
        F: AsyncFnOnce() -> Result<Option<T>, E>,
    {
        let store = self.client.store()?;
        let shown = store.show(guard.name(), guard.fence()).await?;
        let shown = shown.map_err(|stale| store::lost(stale, guard.name()))?;
        if let Some(found) = self.newer(shown, judged) {
            self.end(guard).await;
            return Ok(found);
        }
        let loaded = tokio::select! {
            biased;
            lost = guard.lost() => return Ok(self.instead(&guard, lost).await?),
            loaded = load() => loaded,
        };
        let loaded = match loaded {
            Ok(loaded) => loaded.map(Arc::new),
            Err(error) => {
                self.end(guard).await;
                return Err(LoadError::Load(Arc::new(error)));
            }
        };
        let held = self.keep(&guard, loaded).await?;
        self.end(guard).await;
        Ok(held)
    }

    /// Puts a loaded value into the store. What the store did not take is told, and held by this process alone.
    async fn keep(&self, guard: &Guard, loaded: Option<Arc<T>>) -> Result<Held<T>> {
        let store = self.client.store()?;
        let ttl = self.draw_ttl(loaded.is_some());
        let stale = match loaded {
            Some(_) => self.settings.stale,
            None => Duration::ZERO,
        };
        let value = encode(loaded.as_deref(), ttl)?;
        let now = self.layer.now();
        let end = now.saturating_add(micros(ttl.saturating_add(stale)));
        let reload = self.draw_reload(loaded.is_some(), now, ttl, ttl);
        let local = self.settings.local;
        let held = Held::new(loaded, None, [now, reload, end], local);
        // Nothing that is not kept still takes the place of an older value.
        let value = Some(&value[..]).filter(|_| !ttl.is_zero());
        let keep = ttl.saturating_add(stale);
        match store::put(&*store, guard, value, Some(keep)).await {
            Ok(()) => Ok(held),
            Err(error) if error.kind() == ErrorKind::Lost => self.instead(guard, error).await,
            Err(error) => {
                tracing::warn!(%error, name = self.key.name(), "the store did not take a loaded value");
                let end = now.saturating_add(micros(local)).min(end);
                Ok(Held::new(held.value, None, [now, end, end], local))
            }
        }
    }

    /// The loader lost its lock: what a later one has loaded, or the loss.
    async fn instead(&self, guard: &Guard, lost: Error) -> Result<Held<T>> {
        let store = self.client.store()?;
        let entry = store.get(guard.name()).await?;
        let later = entry.filter(|entry| entry.fence > guard.fence());
        self.newer(later, None).ok_or(lost)
    }

    /// A value that need not be loaded again.
    fn newer(&self, entry: Option<Entry>, judged: Option<SystemTime>) -> Option<Held<T>> {
        let found = self.read(entry, None)?;
        let changed = judged.is_none() || found.written != judged;
        (changed && found.reload > self.layer.now()).then_some(found)
    }

    /// A value of the store; none if it is of no use to this program.
    fn read(&self, entry: Option<Entry>, before: Option<&Held<T>>) -> Option<Held<T>> {
        let entry = entry?;
        let (value, ttl) = decode::<T>(&entry.value)?;
        let now = self.layer.now();
        let left = ttl.saturating_sub(entry.age());
        let end = now.saturating_add(micros(entry.left().unwrap_or(left)));
        let same = before.filter(|before| before.written == Some(entry.written));
        let reload = match same {
            Some(before) => before.reload,
            None => self.draw_reload(value.is_some(), now, ttl, left),
        };
        let written = Some(entry.written);
        let local = self.settings.local;
        Some(Held::new(value, written, [now, reload, end], local))
    }

    fn draw_ttl(&self, there: bool) -> Duration {
        let ttl = match there {
            true => self.settings.ttl,
            false => self.settings.nothing.unwrap_or(self.settings.ttl / 10),
        };
        ttl.mul_f64(1.0 - self.settings.jitter * rand::random::<f64>())
    }

    /// From when on a value is to be reloaded that has so much left of its ttl.
    fn draw_reload(&self, there: bool, now: Micros, ttl: Duration, left: Duration) -> Micros {
        let early = match there {
            true => ttl.mul_f64(self.settings.early * rand::random::<f64>()),
            false => Duration::ZERO,
        };
        now.saturating_add(micros(left.saturating_sub(early)))
    }

    fn warn<E>(&self, failed: &LoadError<E>, what: &str) {
        let name = self.key.name();
        match failed {
            LoadError::Load(_) => tracing::warn!(name, "{what}"),
            LoadError::Lock(error) => tracing::warn!(name, %error, "{what}"),
        }
    }

    /// Gives the lock back; the background goes on where the engine cannot be told.
    async fn end(&self, guard: Guard) {
        if let Err(error) = guard.release().await {
            tracing::debug!(%error, "a release is left to the background");
        }
    }
}

fn encode<T: Serialize>(value: Option<&T>, ttl: Duration) -> Result<Vec<u8>> {
    let word = if value.is_some() { VALUE } else { NOTHING };
    let mut bytes = format!("{word} {}\n", ttl.as_millis()).into_bytes();
    if let Some(value) = value {
        serde_json::to_writer(&mut bytes, value).map_err(|error| {
            let what = "a cached value cannot be written as JSON";
            Error::new(ErrorKind::Invalid, Step::Store, what).because(error)
        })?;
    }
    Ok(bytes)
}

/// The value and its ttl; none if this program cannot read it, as after a change of its type.
pub(in crate::kinds) fn decode<T: DeserializeOwned>(
    bytes: &[u8],
) -> Option<(Option<Arc<T>>, Duration)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (word, ttl) = std::str::from_utf8(&bytes[..end]).ok()?.split_once(' ')?;
    let ttl = Duration::from_millis(ttl.parse().ok()?);
    match word {
        NOTHING => Some((None, ttl)),
        VALUE => Some((
            Some(Arc::new(serde_json::from_slice(&bytes[end + 1..]).ok()?)),
            ttl,
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let ttl = Duration::from_millis(1234);
        let bytes = encode(Some(&vec![1, 2]), ttl).expect("JSON");
        assert_eq!(bytes, b"value 1234\n[1,2]");
        let (value, read) = decode::<Vec<u8>>(&bytes).expect("readable");
        assert_eq!((value.as_deref(), read), (Some(&vec![1, 2]), ttl));
        let bytes = encode::<u8>(None, ttl).expect("JSON");
        assert_eq!(decode::<u8>(&bytes), Some((None, ttl)));
        for other in [
            &b""[..],
            b"value 1\n",
            b"value x\n1",
            b"done x\n1",
            b"value 1\n\"a\"",
        ] {
            assert_eq!(decode::<u8>(other), None, "{other:?}");
        }
    }
}
