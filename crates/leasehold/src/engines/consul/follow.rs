//! The requests that wait for changes: one for each shard of the names that is watched.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::client::trouble::Trouble;
use super::views::{State, Views};

/// How long a holder's watch on its line waits before it costs a request, and between two of them: locks that are
/// released sooner save it.
const LAZY: Duration = Duration::from_millis(20);

/// What has to be asked for.
pub(super) struct Scope {
    pub(super) below: String,
    /// Whether no watch is in a hurry.
    lazy: bool,
    hurry: Arc<Notify>,
}

impl Views {
    /// Waits for changes in one shard as long as it is watched.
    pub(super) async fn follow(self: Arc<Self>, shard: String) {
        let _ends = Ends(&self, &shard);
        let (mut heard, mut failed) = (self.http.heard(), 0);
        // What was asked for last, and the number of the answer.
        let mut before: Option<(String, u64)> = None;
        while let Some(scope) = self.wanted(&shard) {
            if scope.lazy {
                tokio::select! {
                    () = lazily() => {}
                    () = scope.hurry.notified() => {}
                    () = self.over.cancelled() => return,
                }
                if self
                    .scope(&shard)
                    .is_none_or(|now| now.below != scope.below)
                {
                    continue;
                }
            }
            let below = &scope.below;
            let index = before
                .take()
                .filter(|(last, _)| last == below)
                .map(|(_, index)| index);
            let sent = self.sent();
            let answer = tokio::select! {
                answer = self.http.tree(below, index) => answer,
                () = self.over.cancelled() => return,
                () = self.widened(&shard, &scope) => continue,
                // The connection that the request waits on may be dead without saying so.
                () = back(&mut heard) => Err(Trouble::Later("Consul is heard again".to_owned())),
            };
            match answer {
                Ok((entries, now)) => {
                    // A number that went back is that of another history: waiting for more than the old one may take for ever.
                    before = index
                        .is_none_or(|index| now >= index)
                        .then(|| (below.clone(), now.max(1)));
                    self.take_all(&shard, below, entries, now, sent);
                    failed = 0;
                }
                Err(trouble) => {
                    tracing::debug!(%trouble, "asking for changes again");
                    failed += 1;
                    tokio::select! {
                        () = pause(failed) => {}
                        () = self.over.cancelled() => return,
                    }
                }
            }
        }
    }

    /// Resolves when more is watched than is asked for.
    async fn widened(&self, shard: &str, asked: &Scope) {
        let more = || {
            let now = self.scope(shard);
            now.filter(|now| !now.below.starts_with(&asked.below))
        };
        loop {
            match more() {
                Some(now) if now.lazy => {
                    lazily().await;
                    if more().is_some() {
                        return;
                    }
                }
                Some(_) => return,
                None => {}
            }
            asked.hurry.notified().await;
        }
    }

    /// What a shard's watches need, if there are any.
    pub(super) fn scope(&self, shard: &str) -> Option<Scope> {
        scope(&self.state.lock(), self, shard)
    }

    /// The same; if there are none, the task that asks this ends.
    fn wanted(&self, name: &str) -> Option<Scope> {
        let mut state = self.state.lock();
        let wanted = scope(&state, self, name);
        if wanted.is_none()
            && let Some(shard) = state.shards.get_mut(name)
        {
            // Said under the lock: a watch that comes after this starts another task.
            (shard.running, shard.last) = (false, None);
        }
        wanted
    }
}

fn scope(state: &State, views: &Views, name: &str) -> Option<Scope> {
    let shard = state.shards.get(name)?;
    if shard.urgent + shard.lazy == 0 {
        return None;
    }
    let mut dirs = state.dirs.keys().filter(|dir| views.shard(dir) == name);
    let below = match (dirs.next(), dirs.next()) {
        (Some(dir), None) => dir.clone(),
        _ => format!("{}{name}", views.prefix),
    };
    Some(Scope {
        below,
        lazy: shard.urgent == 0,
        hurry: shard.hurry.clone(),
    })
}

async fn lazily() {
    tokio::time::sleep(LAZY.mul_f64(rand::random_range(0.5..1.0))).await;
}

/// Resolves when the agent is heard again after it was not.
async fn back(heard: &mut watch::Receiver<bool>) {
    let _ = heard.wait_for(|heard| !heard).await;
    let _ = heard.wait_for(|heard| *heard).await;
}

/// A pause that grows with the failures before it, never the same twice.
pub(super) async fn pause(failed: u32) {
    let longest = Duration::from_millis(20 << failed.min(5)).min(Duration::from_millis(500));
    tokio::time::sleep(longest.mul_f64(rand::random_range(0.5..1.0))).await;
}

/// The end of the task that follows a shard, however it comes.
struct Ends<'a>(&'a Views, &'a str);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if let Some(shard) = state.shards.get_mut(self.1)
            && self.0.over.is_cancelled()
        {
            (shard.running, shard.last) = (false, None);
        }
    }
}
