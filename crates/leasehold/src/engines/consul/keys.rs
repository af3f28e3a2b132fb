//! What is done to the keys of a directory.

use std::sync::Arc;

use super::client::kv::{Entry, Op};
use super::client::trouble::Trouble;
use super::follow::pause;
use super::names::{self, LINE, PERMITS, QUEUE};
use super::server::ConsulServer;
use super::stored::{dir_of, nodes, room_node, stamp, unstamp};
use super::views::Dir;
use crate::engines::ordered::{Fail, Listed};

impl ConsulServer {
    /// The keys of a directory now.
    pub(super) async fn fresh(&self, dir: &str) -> Result<Arc<Dir>, Fail> {
        let sent = self.views.sent();
        let (entries, index) = self.again(|| self.http.tree(dir, None)).await?;
        Ok(self.views.take(dir, entries, index, sent))
    }

    /// One key as it is known, or as it is now if it is not.
    pub(super) async fn find(&self, room: &str, node: &str) -> Result<Option<Entry>, Fail> {
        let (dir, key) = (dir_of(room), format!("{room}{node}"));
        if let Some(entry) = self
            .views
            .known(dir)
            .and_then(|dir| dir.entries.get(&key).cloned())
        {
            return Ok(Some(entry));
        }
        Ok(self
            .again(|| self.http.key(&key))
            .await?
            .filter(|entry| !entry.session.is_empty()))
    }

    pub(super) fn listed(&self, room: &str, keys: &Dir) -> Listed {
        let dir = dir_of(room);
        let mut nodes = nodes(room, keys);
        let others = [LINE, QUEUE, PERMITS].map(|other| format!("{dir}{other}"));
        let others = others.iter().filter(|other| *other != room);
        for other in others {
            if keys
                .entries
                .values()
                .any(|entry| names::node(other, entry).is_some())
            {
                nodes.push(room_node(other));
            }
        }
        // Permits that are given back are waited for; a line behind a holder is looked at with less hurry.
        let urgent = room.ends_with(PERMITS);
        Listed {
            nodes,
            watch: self.views.watch_room(dir, room, keys, urgent),
        }
    }

    /// Writes the data of a key, and its flags if they are given; none if the key does not exist.
    pub(super) async fn rewrite(
        &self,
        key: &str,
        flags: Option<u64>,
        data: &[u8],
    ) -> Result<Option<()>, Fail> {
        loop {
            let Some(old) = self.again(|| self.http.key(key)).await? else {
                return Ok(None);
            };
            if old.session.is_empty() {
                return Ok(None);
            }
            let (since, was) = unstamp(&old.value);
            let flags = flags.unwrap_or(old.flags);
            if flags == old.flags && was == data {
                return Ok(Some(()));
            }
            let value = stamp(since, data);
            // Bound to what was read: a request that comes late changes nothing, and makes no key.
            let op = [Op::Cas(key, flags, &value, old.modified)];
            match self.unless_over(self.http.txn(&op)).await {
                Ok(_) => return Ok(Some(())),
                Err(Trouble::Failed(..) | Trouble::Later(_) | Trouble::Unknown(_)) => {
                    pause(0).await
                }
                Err(trouble) => return Err(trouble.into()),
            }
        }
    }

    /// Deletes a key; false if it did not exist.
    pub(super) async fn remove(&self, key: &str) -> Result<bool, Fail> {
        let mut tries = 0;
        let ops = [Op::Get(key), Op::Delete(key)];
        let deleted = self.again(|| {
            tries += 1;
            self.http.txn(&ops)
        });
        let deleted = match deleted.await {
            Ok(_) => true,
            // The request whose answer was lost may have deleted it.
            Err(Trouble::Failed(0, _)) => tries > 1,
            Err(trouble) => return Err(trouble.into()),
        };
        self.views.forget(key);
        Ok(deleted)
    }
}
