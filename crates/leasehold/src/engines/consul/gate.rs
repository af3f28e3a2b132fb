//! How a claim's key is made once, whatever becomes of requests and answers: the gate of a session.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::client::kv::Op;
use super::client::trouble::Trouble;
use super::follow::pause;
use super::names::{self, GATES};
use super::server::ConsulServer;
use super::stored::{dir_of, now, number_of, stamp};
use super::views::Dir;
use crate::claim::ClaimId;
use crate::engines::ordered::{Fail, Made, New};
use crate::error::ErrorKind;

impl ConsulServer {
    pub(super) fn gate_key(&self) -> String {
        format!("{}/{GATES}{}", self.http.config.prefix, self.lease.id)
    }

    /// Moves the session's gate on from this change of it. Requests to make keys that named it, or an older one, and whose
    /// outcome is not known, have happened by then or never will. One move does for all of them: each stops the requests
    /// that are under way.
    pub(super) async fn move_gate(&self, from: u64) -> Result<(), Fail> {
        let _one_at_a_time = self.moving.lock().await;
        if self.gate.load(Ordering::Acquire) > from {
            return Ok(());
        }
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
        let name = names::node_name(new.claim);
        let making = Making {
            room,
            key: format!("{room}{name}"),
            flags: names::flags(new.kind, count),
            value: stamp(now(), new.data),
        };
        let mut failed = 0;
        let (number, keys) = loop {
            let known = self.gate.load(Ordering::Acquire);
            if let Some(made) = self.try_to_make(&making, known).await? {
                break made;
            }
            // A gate that was moved says nothing of the next try.
            if self.gate.load(Ordering::Acquire) == known {
                failed += 1;
                let paused = async {
                    pause(failed).await;
                    Ok(())
                };
                self.unless_over(paused).await?;
            }
        };
        Ok(Made {
            names: vec![name],
            number: number_of(number)?,
            listed: self.listed(room, &keys),
        })
    }

    /// Asks once; none if the key was surely not made.
    async fn try_to_make(
        &self,
        making: &Making<'_>,
        known: u64,
    ) -> Result<Option<(u64, Arc<Dir>)>, Fail> {
        let (dir, gate, sent) = (dir_of(making.room), self.gate_key(), self.views.sent());
        let ops = [
            Op::CheckIndex(&gate, known),
            Op::Lock(&making.key, making.flags, &making.value, &self.lease.id),
            Op::GetTree(dir),
        ];
        let _ = self.under_way.lock().insert(making.key.clone(), known);
        let answer = self.unless_over(self.http.txn(&ops)).await;
        if !matches!(answer, Err(Trouble::Unknown(_))) {
            let _ = self.under_way.lock().remove(&making.key);
        }
        match answer {
            // The gate and the key, and then all keys.
            Ok(entries) if entries.len() > 2 => {
                let number = entries[1].created;
                let keys = self.views.take(dir, entries[2..].to_vec(), number, sent);
                Ok(Some((number, keys)))
            }
            Ok(_) | Err(Trouble::Unknown(_)) => {
                self.move_gate(known).await?;
                let sent = self.views.sent();
                let (entries, index) = self.again(|| self.http.tree(dir, None)).await?;
                let _ = self.under_way.lock().remove(&making.key);
                let made = entries.iter().find(|entry| entry.key == making.key);
                let number = made.map(|entry| entry.created);
                Ok(number.map(|number| (number, self.views.take(dir, entries, index, sent))))
            }
            Err(Trouble::Failed(0, _)) => match self.look_at_gate().await {
                Err(Fail::Over(why)) => Err(Fail::Over(why)),
                _ => Ok(None),
            },
            Err(Trouble::Later(_)) => Ok(None),
            Err(trouble) => {
                if let Trouble::Dead(_) = trouble {
                    self.lease.over.cancel();
                }
                Err(trouble.into())
            }
        }
    }

    /// Deletes the key of a claim that gave up, if a request to make it may have happened.
    pub(super) async fn clear_key(&self, room: &str, claim: ClaimId) -> Result<bool, Fail> {
        let key = format!("{room}{}", names::node_name(claim));
        let known = self.under_way.lock().get(&key).copied();
        let Some(known) = known else { return Ok(false) };
        self.move_gate(known).await?;
        let there = self.remove(&key).await?;
        let _ = self.under_way.lock().remove(&key);
        Ok(there)
    }
}

/// A key to make.
struct Making<'a> {
    room: &'a str,
    key: String,
    flags: u64,
    value: Vec<u8>,
}
