//! What is known of the keys below names, and the requests that wait for their changes.
//!
//! Every answer that lists the keys of a name is kept while a claim watches them. As long as there is a watch, one request
//! per shard of the names ([`names::shard`]) waits for changes there, however many claims watch: for those of the one name
//! that is watched, or for those of all names of the shard.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::client::Http;
use super::client::kv::Entry;
use super::client::trouble::Answer;
use super::follow::Scope;
use super::names;
use crate::engines::ordered::Watch;
use crate::sync::Shared;

/// The keys below one name, by their full keys, at one moment.
#[derive(Debug, Default)]
pub(super) struct Dir {
    pub(super) entries: BTreeMap<String, Entry>,
    /// The server's number of the moment.
    index: u64,
    /// When it was taken in.
    at: u64,
}

impl Dir {
    pub(super) fn of(entries: Vec<Entry>) -> Self {
        let entries = entries.into_iter().map(|entry| (entry.key.clone(), entry));
        Self {
            entries: entries.collect(),
            ..Self::default()
        }
    }
}

/// What one session knows of names.
pub(super) struct Views {
    pub(super) http: Arc<Http>,
    /// The start of every key, with its slash.
    pub(super) prefix: String,
    pub(super) over: CancellationToken,
    runtime: Handle,
    /// Counts answers, and the sending of requests.
    count: AtomicU64,
    pub(super) state: Shared<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) dirs: HashMap<String, watch::Sender<Arc<Dir>>>,
    pub(super) shards: HashMap<String, Shard>,
}

/// The watches on the names of one shard.
#[derive(Default)]
pub(super) struct Shard {
    pub(super) urgent: usize,
    pub(super) lazy: usize,
    pub(super) running: bool,
    /// Told of each new watch.
    pub(super) hurry: Arc<Notify>,
    /// The last answer to the request that waits for changes.
    pub(super) last: Option<Last>,
}

pub(super) struct Last {
    /// The start of the keys that were asked for.
    below: String,
    entries: Vec<Entry>,
    index: u64,
}

/// When a request was sent, among the answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent(u64);

impl Views {
    pub(super) fn new(http: Arc<Http>, over: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            prefix: format!("{}/", http.config.prefix),
            http,
            over,
            runtime: Handle::current(),
            count: AtomicU64::new(0),
            state: Shared::default(),
        })
    }

    /// A request that lists keys is about to be sent.
    pub(super) fn sent(&self) -> Sent {
        Sent(self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// What is known of a directory; none if no claim watches it.
    pub(super) fn known(&self, dir: &str) -> Option<Arc<Dir>> {
        let state = self.state.lock();
        state.dirs.get(dir).map(|dir| dir.borrow().clone())
    }

    /// Takes the list of a directory's keys in, and answers the latest that is known. The caller watches it then.
    pub(super) fn take(&self, dir: &str, entries: Vec<Entry>, index: u64, sent: Sent) -> Arc<Dir> {
        let mut state = self.state.lock();
        if !state.dirs.contains_key(dir) {
            let _ = state.dirs.insert(dir.to_owned(), watch::Sender::default());
            // The request that waits for changes may know more, and does not tell it twice.
            let last = state.shards.get(self.shard(dir));
            if let Some(last) = last.and_then(|shard| shard.last.as_ref())
                && last.index > index
                && dir.starts_with(&last.below)
            {
                let there = last
                    .entries
                    .iter()
                    .filter(|entry| entry.key.starts_with(dir));
                let there = there.cloned().collect();
                self.update(&state.dirs[dir], there, last.index, Sent(u64::MAX));
            }
        }
        let known = &state.dirs[dir];
        self.update(known, entries, index, sent);
        known.borrow().clone()
    }

    /// An answer is newer than what is known if its request was sent after that had come. Of two that were under way
    /// together, the one with the larger number is.
    fn update(&self, known: &watch::Sender<Arc<Dir>>, new: Vec<Entry>, index: u64, sent: Sent) {
        let at = self.count.fetch_add(1, Ordering::Relaxed);
        let _ = known.send_if_modified(|known| {
            if sent.0 <= known.at && index < known.index {
                return false;
            }
            *known = Arc::new(Dir {
                index,
                at,
                ..Dir::of(new)
            });
            true
        });
    }

    /// Takes in what is below one start of keys.
    pub(super) fn take_all(
        &self,
        shard: &str,
        below: &str,
        entries: Vec<Entry>,
        index: u64,
        sent: Sent,
    ) {
        let mut state = self.state.lock();
        let mut by_dir: HashMap<&str, Vec<Entry>> = HashMap::new();
        for entry in &entries {
            let dir = by_dir.entry(self.dir(&entry.key)).or_default();
            dir.push(entry.clone());
        }
        for (dir, known) in &state.dirs {
            if dir.starts_with(below) {
                let entries = by_dir.remove(dir.as_str()).unwrap_or_default();
                self.update(known, entries, index, sent);
            }
        }
        if let Some(shard) = state.shards.get_mut(shard) {
            let below = below.to_owned();
            shard.last = Some(Last {
                below,
                entries,
                index,
            });
        }
    }

    /// A key was deleted by this process: its watches need not wait until the server says so.
    pub(super) fn forget(&self, key: &str) {
        let state = self.state.lock();
        if let Some(known) = state.dirs.get(self.dir(key)) {
            let _ = known.send_if_modified(|known| {
                let there = known.entries.contains_key(key);
                if there {
                    let mut entries = known.entries.clone();
                    let _ = entries.remove(key);
                    let (index, at) = (known.index, known.at);
                    *known = Arc::new(Dir { entries, index, at });
                }
                there
            });
        }
    }

    /// Asks for all keys that are watched: what the server knew when this was called is taken in then.
    pub(super) async fn refresh(&self) -> Answer<()> {
        let shards: Vec<String> = self.state.lock().shards.keys().cloned().collect();
        for shard in shards {
            let Some(Scope { below, .. }) = self.scope(&shard) else {
                continue;
            };
            let sent = self.sent();
            let (entries, index) = self.http.tree(&below, None).await?;
            self.take_all(&shard, &below, entries, index, sent);
        }
        Ok(())
    }

    /// Resolves when a key is deleted or has another number than this.
    pub(super) fn watch_key(
        self: &Arc<Self>,
        dir: &str,
        key: &str,
        modified: u64,
    ) -> Option<Watch> {
        let key = key.to_owned();
        self.watch(dir, true, move |dir| {
            dir.entries
                .get(&key)
                .is_none_or(|entry| entry.modified != modified)
        })
    }

    /// Resolves when there are other keys in a room than in `then`.
    pub(super) fn watch_room(
        self: &Arc<Self>,
        dir: &str,
        room: &str,
        then: &Dir,
        urgent: bool,
    ) -> Option<Watch> {
        let keys = |dir: &Dir| -> Vec<(String, u64)> {
            let room = dir
                .entries
                .values()
                .filter(|entry| entry.key.starts_with(room));
            room.map(|entry| (entry.key.clone(), entry.created))
                .collect()
        };
        let (then, room) = (keys(then), room.to_owned());
        self.watch(dir, urgent, move |dir| {
            let now = dir
                .entries
                .values()
                .filter(|entry| entry.key.starts_with(&room));
            !now.map(|entry| (entry.key.as_str(), entry.created))
                .eq(then.iter().map(|(key, created)| (key.as_str(), *created)))
        })
    }

    fn watch(
        self: &Arc<Self>,
        dir: &str,
        urgent: bool,
        changed: impl Fn(&Dir) -> bool + Send + Sync + 'static,
    ) -> Option<Watch> {
        let mut interest = Interest::new(self, dir, urgent)?;
        let over = self.over.clone();
        Some(Box::pin(async move {
            let seen = interest.known.wait_for(|dir| changed(dir));
            tokio::select! {
                _ = seen => {}
                () = over.cancelled() => {}
            }
            drop(interest);
        }))
    }

    /// The directory of a key, with its slash.
    fn dir<'k>(&self, key: &'k str) -> &'k str {
        let parts = key.strip_prefix(&self.prefix).unwrap_or("");
        let length: usize = parts.split_inclusive('/').take(2).map(str::len).sum();
        key.get(..self.prefix.len() + length).unwrap_or(key)
    }

    /// The shard of a directory, below the prefix.
    pub(super) fn shard<'d>(&self, dir: &'d str) -> &'d str {
        names::shard(dir.strip_prefix(&self.prefix).unwrap_or(""))
    }
}

/// One watch on a directory.
struct Interest {
    views: Arc<Views>,
    dir: String,
    urgent: bool,
    known: watch::Receiver<Arc<Dir>>,
}

impl Interest {
    /// None if the directory is not known.
    fn new(views: &Arc<Views>, dir: &str, urgent: bool) -> Option<Self> {
        let mut state = views.state.lock();
        let known = state.dirs.get(dir)?.subscribe();
        let name = views.shard(dir).to_owned();
        let shard = state.shards.entry(name.clone()).or_default();
        match urgent {
            true => shard.urgent += 1,
            false => shard.lazy += 1,
        }
        shard.hurry.notify_one();
        if !std::mem::replace(&mut shard.running, true) {
            drop(views.runtime.spawn(views.clone().follow(name)));
        }
        Some(Self {
            views: views.clone(),
            dir: dir.to_owned(),
            urgent,
            known,
        })
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        let mut state = self.views.state.lock();
        if let Some(shard) = state.shards.get_mut(self.views.shard(&self.dir)) {
            match self.urgent {
                true => shard.urgent -= 1,
                false => shard.lazy -= 1,
            }
        }
        // This one is still counted.
        let last = |known: &watch::Sender<_>| known.receiver_count() <= 1;
        if state.dirs.get(&self.dir).is_some_and(last) {
            drop(state.dirs.remove(&self.dir));
        }
    }
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Views({})", self.prefix)
    }
}
