//! A semaphore: `.lock` names the sessions that have permits, and each of them has a key beside it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::client::kv::{Entry, Op};
use super::super::client::trouble::Trouble;
use super::super::follow::pause;
use super::super::names::node_name;
use super::super::session::Lease;
use super::super::stored::stamp;
use super::hall::{Phase, Place, Slot};
use super::layout::{DOT_LOCK, Holders, SEMAPHORE};
use super::server::{SharedServer, left_over, node};
use crate::engine::Inbox;
use crate::engines::ordered::data::Note;
use crate::engines::ordered::{Fail, Kind, Listed, Node, Watch};
use crate::error::{Error, ErrorKind};
use crate::line::Refusal;

/// One transaction takes all permits of a claim.
const MOST: u32 = 60;

/// A semaphore at one moment.
pub(super) struct Now {
    /// Those that live.
    pub(super) holders: Holders,
    /// The number of the last change of `.lock`; 0 if it does not exist.
    pub(super) modified: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) index: u64,
}

impl Now {
    /// The key of a session that has a permit.
    pub(super) fn contender(&self, dir: &str, session: &str) -> Option<&Entry> {
        let has = |entry: &&Entry| {
            entry.session == session && entry.key.strip_prefix(dir) == Some(session)
        };
        self.entries.iter().find(has)
    }

    fn has(&self, dir: &str, place: &Place) -> bool {
        let mut sessions = place.slots.iter().map(|slot| &slot.lease.id);
        !place.slots.is_empty()
            && sessions
                .all(|id| self.holders.sessions.contains(id) && self.contender(dir, id).is_some())
    }
}

impl SharedServer {
    pub(super) async fn permits_now(&self, dir: &str) -> Result<Now, Fail> {
        let (entries, index) = self.own.again(|| self.own.http.tree(dir, None)).await?;
        let lock = entries
            .iter()
            .find(|entry| entry.key.strip_prefix(dir) == Some(DOT_LOCK));
        let (mut holders, mut modified) = (Holders::default(), 0);
        if let Some(lock) = lock {
            if lock.flags != SEMAPHORE {
                return Err(Self::in_the_way(lock));
            }
            holders = Holders::read(&lock.value).ok_or_else(|| left_over(&lock.key))?;
            modified = lock.modified;
        }
        let mut now = Now {
            holders,
            modified,
            entries,
            index,
        };
        // A session that ended has left its name in `.lock`, and no key.
        let mut alive = std::mem::take(&mut now.holders.sessions);
        alive.retain(|session| now.contender(dir, session).is_some());
        now.holders.sessions = alive;
        Ok(now)
    }

    /// The sessions for a claim's permits.
    async fn slots(&self, count: u32) -> Result<Vec<Arc<Slot>>, Fail> {
        if count > MOST {
            let what = format!(
                "{count} permits at once are too many in this layout: ask for at most {MOST}"
            );
            return Err(Fail::Refused(ErrorKind::Unsupported, what));
        }
        let mut slots = Vec::new();
        while slots.len() < count as usize {
            let spare = self.spare.lock().pop();
            match spare {
                Some(slot) if slot.lease.over.is_cancelled() => {}
                Some(slot) => slots.push(slot),
                None => {
                    let (own, http) = (&self.own.lease, &self.own.http);
                    let over = own.over.child_token();
                    let nobody = Inbox::new(|_| {});
                    let lease = Lease::open(http, own.ttl, &self.floor, nobody, over).await?;
                    let _over = lease.over.clone().drop_guard();
                    slots.push(Arc::new(Slot { lease, _over }));
                }
            }
        }
        // Lives as long as it is kept: the shortest time that Consul keeps it counts from its last renewal.
        for slot in &slots {
            slot.lease.renew().await?;
        }
        Ok(slots)
    }

    /// Takes permits, or a place among those of this process that try.
    pub(super) async fn make_permits(
        &self,
        dir: &str,
        place: Place,
        count: u32,
    ) -> Result<(), Fail> {
        let slots = self.slots(count).await?;
        let place = Place { slots, ..place };
        self.hall.join(dir, place);
        Ok(())
    }

    /// Who has permits, after the caller has tried, if it wants some.
    pub(super) async fn list_permits(&self, dir: &str) -> Result<Listed, Fail> {
        loop {
            let now = self.permits_now(dir).await?;
            let places = self.hall.places(dir);
            let Some(place) = places.iter().find(|place| place.tries()) else {
                return Ok(self.listed(dir, &now, &places));
            };
            let note = Note::read(&place.data);
            let capacity = note.map_or(1, |note| note.capacity);
            let limit = now.holders.limit;
            if limit != capacity && !now.holders.sessions.is_empty() {
                return Err(Error::from(Refusal::Capacity(limit)).into());
            }
            if now.holders.sessions.len() + place.slots.len() > capacity as usize {
                return Ok(self.listed(dir, &now, &places));
            }
            self.try_permits(dir, place, &now, capacity).await?;
        }
    }

    /// Tries to write itself into `.lock`. What became of it is seen in the next list.
    async fn try_permits(
        &self,
        dir: &str,
        place: &Place,
        now: &Now,
        limit: u32,
    ) -> Result<(), Fail> {
        let (own, gate) = (&self.own, self.own.gate_key());
        let mut holders = now.holders.clone();
        holders.limit = limit;
        holders
            .sessions
            .extend(place.slots.iter().map(|slot| slot.lease.id.clone()));
        let (lock, text) = (format!("{dir}{DOT_LOCK}"), holders.write());
        let note = Note::read(&place.data).map(|note| Note { weight: 1, ..note }.write());
        let value = stamp(place.since, &note.unwrap_or_default());
        let keys = place
            .slots
            .iter()
            .map(|slot| (format!("{dir}{}", slot.lease.id), &slot.lease.id));
        let keys: Vec<_> = keys.collect();
        let mut ops = vec![
            Op::CheckIndex(&gate, own.gate.load(Ordering::Acquire)),
            Op::Cas(&lock, SEMAPHORE, &text, now.modified),
        ];
        ops.extend(
            keys.iter()
                .map(|(key, session)| Op::Lock(key, SEMAPHORE, &value, session)),
        );
        self.hall.set(dir, place.claim, Phase::Asks);
        match own.unless_over(own.http.txn(&ops)).await {
            Ok(entries) => {
                let number = entries.iter().find(|entry| entry.key == lock);
                let number = number.map_or(now.modified, |entry| entry.modified);
                self.hall.set(dir, place.claim, Phase::Holds(number));
                return Ok(());
            }
            Err(Trouble::Failed(0, _)) => {
                if let Err(Fail::Over(why)) = own.look_at_gate().await {
                    return Err(Fail::Over(why));
                }
            }
            Err(Trouble::Failed(..)) => {}
            Err(Trouble::Unknown(_)) => {
                own.move_gate(own.gate.load(Ordering::Acquire)).await?;
                let then = self.permits_now(dir).await?;
                if then.has(dir, place) {
                    let key = then.contender(dir, keys[0].1);
                    let number = key.map_or(then.modified, |entry| entry.modified);
                    self.hall.set(dir, place.claim, Phase::Holds(number));
                    return Ok(());
                }
            }
            Err(Trouble::Later(_)) => pause(1).await,
            Err(trouble) => {
                self.hall.set(dir, place.claim, Phase::Waits);
                return Err(trouble.into());
            }
        }
        self.hall.set(dir, place.claim, Phase::Waits);
        pause(0).await;
        Ok(())
    }

    fn listed(&self, dir: &str, now: &Now, places: &[Place]) -> Listed {
        let mut others = now.holders.sessions.clone();
        let mut nodes = Vec::new();
        let mut add = |place: &Place| {
            let permit = node(&node_name(place.claim), 1, Some(place.claim));
            let weight = u32::try_from(place.slots.len()).unwrap_or(u32::MAX);
            nodes.push(Node {
                kind: Kind::Permit,
                weight,
                ..permit
            });
        };
        for place in places {
            place
                .slots
                .iter()
                .for_each(|slot| others.retain(|id| *id != slot.lease.id));
            // A list from before a grant does not undo it.
            let there = |number| now.has(dir, place) || now.modified < number;
            if self.has(place) && place.number().is_none_or(there) || now.has(dir, place) {
                add(place);
            }
        }
        let foreign = others.iter().map(|session| Node {
            kind: Kind::Permit,
            ..node(session, 0, None)
        });
        nodes.extend(foreign);
        Listed {
            nodes,
            watch: Some(self.watch_dir(dir, now.index, None)),
        }
    }

    /// Resolves when anything in a semaphore's directory changes; or, if they are given, when one of these keys is gone.
    fn watch_dir(&self, dir: &str, mut index: u64, keys: Option<Vec<String>>) -> Watch {
        let (http, over, dir) = (
            self.own.http.clone(),
            self.own.lease.over.clone(),
            dir.to_owned(),
        );
        let changed = async move {
            let mut failed = 0;
            loop {
                match http.tree(&dir, Some(index.max(1))).await {
                    Ok((entries, now)) => {
                        let held = |key: &String| {
                            entries
                                .iter()
                                .any(|entry| entry.key == *key && !entry.session.is_empty())
                        };
                        let kept = match &keys {
                            Some(keys) => keys.iter().all(held),
                            None => now == index,
                        };
                        if !kept {
                            return;
                        }
                        (index, failed) = (now, 0);
                    }
                    Err(trouble) => {
                        tracing::debug!(%trouble, "asking for changes again");
                        failed += 1;
                        pause(failed).await;
                    }
                }
            }
        };
        Box::pin(async move {
            tokio::select! {
                () = changed => {}
                () = over.cancelled() => {}
            }
        })
    }

    /// What a node of a semaphore says, and the end of one of ours.
    pub(super) async fn read_permits(
        &self,
        dir: &str,
        name: &str,
    ) -> Result<Option<(Vec<u8>, Watch)>, Fail> {
        let Some(place) = self.place(dir, name).filter(|place| self.has(place)) else {
            // Its capacity is that of `.lock`, which was looked at.
            return Ok(Some((Vec::new(), Box::pin(std::future::pending()))));
        };
        let now = self.permits_now(dir).await?;
        if place.number().is_some() && !now.has(dir, &place) {
            return Ok(None);
        }
        let keys = place
            .slots
            .iter()
            .map(|slot| format!("{dir}{}", slot.lease.id));
        let watch = self.watch_dir(dir, now.index, Some(keys.collect()));
        Ok(Some((place.data, watch)))
    }

    /// Gives permits back, whether they are held or asked for.
    pub(super) async fn leave_permits(&self, dir: &str, place: &Place) -> Result<bool, Fail> {
        if place.phase == Phase::Asks {
            let own = &self.own;
            own.move_gate(own.gate.load(Ordering::Acquire)).await?;
        }
        let mut left = place.phase == Phase::Waits;
        if !left {
            let sessions: Vec<_> = place
                .slots
                .iter()
                .map(|slot| slot.lease.id.clone())
                .collect();
            left = self.take_out(dir, &sessions, None).await?;
        }
        self.hall.remove(dir, place.claim);
        let alive = place
            .slots
            .iter()
            .filter(|slot| !slot.lease.over.is_cancelled());
        self.spare.lock().extend(alive.cloned());
        Ok(left)
    }

    /// Takes sessions out of `.lock`, and deletes their keys, if these are of the change with this number or none is given: a
    /// session may have another permit by then. The last one deletes `.lock` as well.
    pub(super) async fn take_out(
        &self,
        dir: &str,
        sessions: &[String],
        number: Option<u64>,
    ) -> Result<bool, Fail> {
        let (lock, mut sent) = (format!("{dir}{DOT_LOCK}"), false);
        loop {
            let now = match self.permits_now(dir).await {
                // Not a semaphore any more.
                Err(Fail::Refused(ErrorKind::Conflict, _)) => return Ok(sent),
                now => now?,
            };
            let same = |entry: &Entry| number.is_none_or(|number| entry.modified == number);
            let there = sessions
                .iter()
                .filter(|session| now.contender(dir, session).is_some_and(same));
            let keys: Vec<_> = there.map(|session| format!("{dir}{session}")).collect();
            if keys.is_empty() {
                return Ok(sent);
            }
            let mut holders = now.holders.clone();
            holders
                .sessions
                .retain(|session| !sessions.contains(session));
            let text = holders.write();
            let mut ops: Vec<_> = keys.iter().map(|key| Op::Delete(key)).collect();
            ops.push(match holders.sessions.is_empty() {
                true => Op::DeleteCas(&lock, now.modified),
                false => Op::Cas(&lock, SEMAPHORE, &text, now.modified),
            });
            match self.own.unless_over(self.own.http.txn(&ops)).await {
                Ok(_) => return Ok(true),
                Err(Trouble::Unknown(_)) => sent = true,
                Err(Trouble::Failed(..) | Trouble::Later(_)) => {}
                Err(trouble) => return Err(trouble.into()),
            }
            pause(0).await;
        }
    }
}
