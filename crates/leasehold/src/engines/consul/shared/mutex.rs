//! A mutex: one key, held by a session.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::client::kv::{Entry, Op};
use super::super::client::trouble::Trouble;
use super::super::follow::pause;
use super::super::names::node_name;
use super::super::stored::{number_of, stamp, unstamp};
use super::hall::{Phase, Place};
use super::layout::{DOT_LOCK, LOCK, SEMAPHORE};
use super::server::{SharedServer, left_over, node};
use crate::engines::ordered::{Fail, Kind, Listed, Node, Watch, conflict};
use crate::error::Error;
use crate::line::Refusal;

/// Stands for the time after a session's end in which Consul gives its key to no session.
const DELAY: &str = "%delay";

/// How often the key is asked for meanwhile: Consul does not say when the time is over.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What became of a try.
enum Tried {
    Holds,
    Delayed,
    /// Another session was faster, or may have been.
    Again,
}

/// The holder, and then those of this process that wait.
fn nodes(places: &[Place], holder: &str, delayed: bool) -> Vec<Node> {
    let own = |at, place: &Place| node(&node_name(place.claim), at, Some(place.claim));
    let (hold, wait): (Vec<_>, Vec<_>) = places.iter().partition(|place| place.number().is_some());
    // One of this process that holds counts, also if the answer is from before its grant.
    let mut nodes: Vec<_> = hold.into_iter().map(|place| own(0, place)).collect();
    if delayed {
        nodes.push(node(DELAY, 0, None));
    } else if !holder.is_empty() && nodes.is_empty() {
        nodes.push(node(holder, 0, None));
    }
    nodes.extend((1..).zip(wait).map(|(at, place)| own(at, place)));
    nodes
}

impl SharedServer {
    /// The key and those of this process that want it, after the first of them has tried if that is the caller. `blind`: the try
    /// comes before the first look.
    pub(super) async fn list_mutex(&self, key: &str, mut blind: bool) -> Result<Listed, Fail> {
        loop {
            let first = self.hall.places(key).into_iter().next();
            let ours = first.filter(Place::tries);
            let (mut holder, mut delayed) = (String::new(), false);
            if !std::mem::take(&mut blind) || ours.is_none() {
                let (entry, index) = self
                    .own
                    .again(|| self.own.http.key_after(key, None))
                    .await?;
                let number = entry.as_ref().map(|entry| entry.modified);
                if let Some(entry) = &entry {
                    if !self.check_mutex(entry).await? {
                        continue;
                    }
                    holder.clone_from(&entry.session);
                }
                self.end_unless(key, &holder, index);
                if ours.is_some() && holder == self.own.lease.id {
                    // No claim has it: none of this session is before this one. What is left of one is deleted.
                    let _ = self.delete_key(key, &holder, number).await?;
                    continue;
                }
                if let (true, Some(place)) = (holder.is_empty(), &ours) {
                    match self.try_mutex(key, place, entry.as_ref()).await? {
                        Tried::Holds => holder.clone_from(&self.own.lease.id),
                        Tried::Delayed => delayed = true,
                        Tried::Again => continue,
                    }
                }
            } else if let Some(place) = &ours {
                match self.try_mutex(key, place, None).await? {
                    Tried::Holds => holder.clone_from(&self.own.lease.id),
                    Tried::Delayed | Tried::Again => continue,
                }
            }
            let places = self.hall.places(key);
            // The first of this process holds only if the server said so.
            let free = holder.is_empty() && !delayed;
            if free && places.first().is_some_and(Place::tries) {
                continue;
            }
            return Ok(Listed {
                nodes: nodes(&places, &holder, delayed),
                watch: None,
            });
        }
    }

    /// A claim of ours that another session's key proves to be over. An answer from before its grant proves nothing.
    fn end_unless(&self, key: &str, holder: &str, index: u64) {
        for place in self.hall.places(key) {
            let older = place.number().is_some_and(|number| number < index);
            if older && self.has(&place) && place.session != holder {
                self.hall.remove(key, place.claim);
            }
        }
    }

    /// Refuses a key that is no mutex's. A semaphore without holders makes room: then this is false, and the key is another.
    async fn check_mutex(&self, entry: &Entry) -> Result<bool, Fail> {
        match entry.flags {
            LOCK => Ok(true),
            SEMAPHORE => {
                let dir = entry.key.strip_suffix(DOT_LOCK).unwrap_or(&entry.key);
                let now = self.permits_now(dir).await?;
                if !now.holders.sessions.is_empty() {
                    return Err(Error::from(Refusal::Capacity(now.holders.limit)).into());
                }
                let op = [Op::DeleteCas(&entry.key, now.modified)];
                match self.own.again(|| self.own.http.txn(&op)).await {
                    Ok(_) | Err(Trouble::Failed(..)) => Ok(false),
                    Err(trouble) => Err(trouble.into()),
                }
            }
            _ => Err(left_over(&entry.key)),
        }
    }

    /// Takes the key if it is still what was read of it. Consul gives a key that no session has to any session, also the `.lock`
    /// of a semaphore that came meanwhile.
    async fn try_mutex(
        &self,
        key: &str,
        place: &Place,
        read: Option<&Entry>,
    ) -> Result<Tried, Fail> {
        let (own, gate, claim) = (&self.own, self.own.gate_key(), place.claim);
        let (session, value) = (&own.lease.id, stamp(place.since, &place.data));
        self.hall.set(key, claim, Phase::Asks);
        let mut failed = 0;
        loop {
            let check = Op::CheckIndex(&gate, own.gate.load(Ordering::Acquire));
            let same = match read {
                Some(entry) => Op::CheckIndex(key, entry.modified),
                None => Op::CheckNotExists(key),
            };
            let lock = Op::Lock(key, LOCK, &value, session);
            let tried = match own.http.txn(&[check, same, lock]).await {
                Ok(entries) => {
                    let made = entries.iter().find(|entry| entry.key == key);
                    made.map(|entry| Phase::Holds(entry.modified))
                }
                Err(Trouble::Failed(0, _)) => {
                    if let Err(Fail::Over(why)) = own.look_at_gate().await {
                        return Err(Fail::Over(why));
                    }
                    None
                }
                Err(Trouble::Failed(_, why)) => {
                    self.hall.set(key, claim, Phase::Waits);
                    let delayed = why.contains("lock delay");
                    return Ok(if delayed {
                        Tried::Delayed
                    } else {
                        Tried::Again
                    });
                }
                Err(Trouble::Unknown(_)) => {
                    own.move_gate(own.gate.load(Ordering::Acquire)).await?;
                    let entry = own.again(|| own.http.key(key)).await?;
                    let ours = entry.filter(|entry| entry.session == *session);
                    ours.map(|entry| Phase::Holds(entry.modified))
                }
                Err(Trouble::Later(_)) => None,
                Err(trouble) => {
                    if let Trouble::Dead(_) = trouble {
                        own.lease.over.cancel();
                    }
                    self.hall.set(key, claim, Phase::Waits);
                    return Err(trouble.into());
                }
            };
            if let Some(phase) = tried {
                self.hall.set(key, claim, phase);
                return Ok(Tried::Holds);
            }
            failed += 1;
            let paused = async {
                pause(failed).await;
                Ok(())
            };
            own.unless_over(paused).await?;
        }
    }

    /// What a node of a mutex says, and its end.
    pub(super) async fn read_mutex(
        &self,
        key: &str,
        name: &str,
    ) -> Result<Option<(Vec<u8>, Watch)>, Fail> {
        if name == DELAY {
            let wait = tokio::time::sleep(LOOK_AGAIN.mul_f64(rand::random_range(0.5..1.0)));
            return Ok(Some((Vec::new(), Box::pin(wait))));
        }
        let place = self.place(key, name);
        let holder = match &place {
            Some(place) if !self.has(place) || place.number().is_none() => {
                return Ok(Some((place.data.clone(), self.hall.watch(key, place))));
            }
            Some(place) => place.session.clone(),
            None => name.to_owned(),
        };
        let (entry, index) = self
            .own
            .again(|| self.own.http.key_after(key, None))
            .await?;
        match (entry.filter(|entry| entry.session == holder), place) {
            (Some(_), Some(place)) => {
                let (left, lost) = (
                    self.hall.watch(key, &place),
                    self.watch_key(key, index, holder),
                );
                let either = async move {
                    tokio::select! {
                        () = left => {}
                        () = lost => {}
                    }
                };
                Ok(Some((place.data, Box::pin(either))))
            }
            (Some(entry), None) => {
                let data = unstamp(&entry.value).1.to_vec();
                Ok(Some((data, self.watch_key(key, index, holder))))
            }
            (None, Some(_)) => {
                self.end_unless(key, "", index);
                Ok(None)
            }
            (None, None) => Ok(None),
        }
    }

    /// Resolves when this session does not have the key any more.
    fn watch_key(&self, key: &str, mut index: u64, session: String) -> Watch {
        let (http, over, key) = (
            self.own.http.clone(),
            self.own.lease.over.clone(),
            key.to_owned(),
        );
        let changed = async move {
            let mut failed = 0;
            loop {
                match http.key_after(&key, Some(index.max(1))).await {
                    Ok((Some(entry), now)) if entry.session == session => {
                        // A number that went back is that of another history.
                        index = if now < index { 0 } else { now };
                        failed = 0;
                    }
                    Ok(_) => return,
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

    /// Gives a mutex back, whether it is held, asked for or waited for; false if it was not held and did not wait.
    pub(super) async fn leave_mutex(&self, key: &str, place: &Place) -> Result<bool, Fail> {
        let session = &place.session;
        if place.phase == Phase::Asks {
            let own = &self.own;
            own.move_gate(own.gate.load(Ordering::Acquire)).await?;
        }
        let left = match place.phase {
            Phase::Waits => true,
            _ => self.delete_key(key, session, place.number()).await?,
        };
        self.hall.remove(key, place.claim);
        Ok(left)
    }

    /// Deletes a key if this session has it since the change with this number, if that is known. When the answer is lost,
    /// another claim of the session may have the key by the time of the next request.
    pub(super) async fn delete_key(
        &self,
        key: &str,
        session: &str,
        number: Option<u64>,
    ) -> Result<bool, Fail> {
        let (own, mut sent, mut modified) = (&self.own, false, number);
        loop {
            let delete = match modified {
                Some(modified) => Op::DeleteCas(key, modified),
                None => Op::Delete(key),
            };
            let (mut tries, ops) = (0, [Op::CheckSession(key, session), delete]);
            let deleted = own.again(|| {
                tries += 1;
                own.http.txn(&ops)
            });
            let deleted = deleted.await;
            // The request whose answer was lost may have deleted it.
            sent |= tries > 1;
            match deleted {
                Ok(_) => return Ok(true),
                Err(Trouble::Failed(1, _)) => {
                    // Another program may have written a value; a key that was made since is of another claim.
                    let entry = own.again(|| own.http.key(key)).await?;
                    let same = entry.filter(|entry| {
                        entry.session == session
                            && number.is_none_or(|number| entry.created <= number)
                    });
                    match same {
                        Some(entry) => modified = Some(entry.modified),
                        None => return Ok(sent),
                    }
                }
                Err(Trouble::Failed(..)) => return Ok(sent),
                Err(trouble) => return Err(trouble.into()),
            }
        }
    }

    /// The number that the fences of a claim come from, once it holds.
    pub(super) fn number_in(&self, room: &str, name: &str) -> Option<i64> {
        number_of(self.place(room, name)?.number()?).ok()
    }

    /// The refusal of a semaphore where a mutex is.
    pub(super) fn in_the_way(entry: &Entry) -> Fail {
        match entry.session.is_empty() {
            false => conflict(Kind::Mutex),
            true => left_over(&entry.key),
        }
    }
}
