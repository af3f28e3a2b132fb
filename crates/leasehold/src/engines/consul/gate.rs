//! How a claim's key is made once, whatever becomes of requests and answers: the gate of a session.

use std::sync::atomic::Ordering;

use super::client::kv::Op;
use super::client::trouble::Trouble;
use super::follow::pause;
use super::names::{self, GATES};
use super::server::ConsulServer;
use super::stored::{dir_of, now, number_of, stamp};
use crate::engines::ordered::{Fail, Made, New};
use crate::error::ErrorKind;

impl ConsulServer {
    pub(super) fn gate_key(&self) -> String {
        format!("{}/{GATES}{}", self.http.config.prefix, self.lease.id)
    }

    /// Changes the session's gate. Requests to make keys that were sent before this, and whose outcome is not known, have
    /// happened by now or never will: each of them names the change of the gate that it knew.
    pub(super) async fn move_gate(&self) -> Result<(), Fail> {
        let key = self.gate_key();
        let moved = self.again(|| {
            // A value that is written again as it was is no change.
            let value = rand::random::<u64>().to_string();
            let (http, key, session) = (&self.http, &key, &self.lease.id);
            async move {
                http.txn(&[Op::Lock(key, 0, value.as_bytes(), session)])
                    .await
            }
        });
        let moved = moved.await?;
        let number = moved.first().map_or(0, |entry| entry.modified);
        let _ = self.gate.fetch_max(number, Ordering::AcqRel);
        Ok(())
    }

    /// Looks at the gate: it may have been moved, or be gone with the session. Not repeated.
    pub(super) async fn look_at_gate(&self) -> Result<(), Fail> {
        let key = self.gate_key();
        match self.http.key(&key).await? {
            Some(gate) if gate.session == self.lease.id => {
                let _ = self.gate.fetch_max(gate.modified, Ordering::AcqRel);
                Ok(())
            }
            _ => {
                self.lease.over.cancel();
                Err(Fail::Over("Consul has ended the session".to_owned()))
            }
        }
    }

    /// Makes a claim's key and lists its directory, in one transaction that passes the gate.
    pub(super) async fn make_key(
        &self,
        room: &str,
        new: &New<'_>,
        count: u32,
    ) -> Result<Made, Fail> {
        if count > names::MOST {
            let what = format!(
                "{count} permits at once are too many: ask for at most {}",
                names::MOST
            );
            return Err(Fail::Refused(ErrorKind::Invalid, what));
        }
        let (dir, name, gate) = (dir_of(room), names::node_name(new.claim), self.gate_key());
        let (key, flags) = (format!("{room}{name}"), names::flags(new.kind, count));
        let value = stamp(now(), new.data);
        let mut failed = 0;
        let (number, keys) = loop {
            let (known, sent) = (self.gate.load(Ordering::Acquire), self.views.sent());
            let ops = [
                Op::CheckIndex(&gate, known),
                Op::Lock(&key, flags, &value, &self.lease.id),
                Op::GetTree(dir),
            ];
            match self.unless_over(self.http.txn(&ops)).await {
                // The gate and the key, and then all keys.
                Ok(entries) if entries.len() > 2 => {
                    let number = entries[1].created;
                    let keys = self.views.take(dir, entries[2..].to_vec(), number, sent);
                    break (number, keys);
                }
                Ok(_) | Err(Trouble::Unknown(_)) => {
                    self.move_gate().await?;
                    let sent = self.views.sent();
                    let (entries, index) = self.again(|| self.http.tree(dir, None)).await?;
                    let made = entries.iter().find(|entry| entry.key == key);
                    if let Some(number) = made.map(|entry| entry.created) {
                        break (number, self.views.take(dir, entries, index, sent));
                    }
                }
                Err(Trouble::Failed(0, _)) => {
                    if let Err(Fail::Over(why)) = self.look_at_gate().await {
                        return Err(Fail::Over(why));
                    }
                }
                Err(Trouble::Later(_)) => {}
                Err(trouble) => {
                    if let Trouble::Dead(_) = trouble {
                        self.lease.over.cancel();
                    }
                    return Err(trouble.into());
                }
            }
            failed += 1;
            let paused = async {
                pause(failed).await;
                Ok(())
            };
            self.unless_over(paused).await?;
        };
        Ok(Made {
            names: vec![name],
            number: number_of(number)?,
            listed: self.listed(room, &keys),
        })
    }
}
