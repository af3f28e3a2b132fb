//! One lease: kept alive, proved to be, and the requests that depend on it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::DropGuard;

use super::client::proto::{KeyValue, RangeRequest, TxnResponse};
use super::client::{Answer, Client, Connection, Trouble};
use super::config::Config;
use super::lease::{Life, keep};
use super::names::SESSIONS;
use super::txn::{Txn, last_change, range, ranges};
use crate::claim::ClaimId;
use crate::clock::{Clock, micros};
use crate::engines::ordered::{Fail, FenceFloor};
use crate::error::{ErrorKind, Result, Step};
use crate::sync::Shared;

/// One lease.
#[derive(Debug)]
pub(super) struct EtcdServer {
    pub(super) client: Client,
    pub(super) prefix: String,
    pub(super) lease: i64,
    /// The lease of the claims, in seconds that the server was asked for, and those it gave.
    pub(super) asked: i64,
    pub(super) given: Duration,
    /// What fences are counted from.
    pub(super) fence_floor: FenceFloor,
    pub(super) clock: Clock,
    /// When the request of the last proof was sent.
    proved: AtomicU64,
    /// Held while the lease is proved, so that one proof does for all that wait for one.
    proving: tokio::sync::Mutex<()>,
    /// The revision of the session's key. A request to make a node is done only while this is true at the server: once
    /// it was moved, one that is still under way comes to nothing.
    pub(super) generation: AtomicI64,
    moving: tokio::sync::Mutex<()>,
    /// The newest revision in which a room was listed.
    pub(super) seen: AtomicI64,
    /// The requests to make nodes that are under way, or whose answers were lost, with their generations.
    pub(super) flights: Shared<HashMap<ClaimId, Arc<tokio::sync::Mutex<Option<i64>>>>>,
    pub(super) life: Life,
    _open: DropGuard,
}

/// The seconds of a lease for claims of this lease: a third more, so that a claim begins without a request for the lease
/// when the last one is not long ago.
pub(super) fn seconds_for(lease: Duration) -> i64 {
    let seconds = (lease * 4 / 3).as_millis().div_ceil(1000);
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

impl EtcdServer {
    /// Has a lease granted for claims of this lease.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(super) async fn open(
        config: &Config,
        client: Client,
        lease: Duration,
    ) -> Result<Arc<Self>> {
        let (asked, clock) = (seconds_for(lease), Clock::boot());
        let failed = |trouble: Trouble| Fail::from(trouble).error::<Self>(Step::Open);
        let sent = clock.now();
        let granted = client.again(client.ended(), || client.grant(asked)).await;
        let granted = granted.map_err(failed)?;
        let given = Duration::from_secs(u64::try_from(granted.ttl).unwrap_or(0));
        let life = Life::default();
        drop(tokio::spawn(keep(
            client.clone(),
            granted.id,
            given,
            life.clone(),
        )));
        let server = Self {
            client,
            prefix: config.prefix.clone(),
            lease: granted.id,
            asked,
            given,
            fence_floor: config.fence_floor,
            clock,
            proved: AtomicU64::new(sent),
            proving: tokio::sync::Mutex::default(),
            generation: AtomicI64::new(0),
            moving: tokio::sync::Mutex::default(),
            seen: AtomicI64::new(0),
            flights: Shared::default(),
            _open: life.closing.clone().drop_guard(),
            life,
        };
        server.move_on(0).await.map_err(failed)?;
        Ok(Arc::new(server))
    }

    pub(super) fn session_key(&self) -> String {
        format!("{}{SESSIONS}/{:x}", self.prefix, self.lease)
    }

    /// Moves on from a generation: requests of that generation to make nodes, and older ones, will do nothing from now on.
    /// One write does for all of them.
    pub(super) async fn move_on(&self, from: i64) -> Answer<()> {
        let _one_at_a_time = self.moving.lock().await;
        if self.generation.load(Ordering::Acquire) != from {
            return Ok(());
        }
        let (key, lease) = (self.session_key(), self.lease);
        let moved = self.txn(|| Txn::new().put(&key, b"", lease)).await?;
        self.generation.store(revision(&moved), Ordering::Release);
        Ok(())
    }

    /// Repeats a transaction until it is certain that it was done. Only for those that may be done twice.
    pub(super) async fn txn(&self, txn: impl Fn() -> Txn + Send + Sync) -> Answer<TxnResponse> {
        let client = &self.client;
        self.judged(
            client
                .again(&self.life.over, || client.txn(txn().request()))
                .await,
        )
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Answer<(Vec<KeyValue>, i64)> {
        let client = &self.client;
        let read = client
            .again(&self.life.over, || client.range(request.clone()))
            .await;
        let read = self.judged(read)?;
        let revision = read.header.map_or(0, |header| header.revision);
        Ok((read.kvs, revision))
    }

    /// Ends the session if its lease does not exist.
    pub(super) fn judged<T>(&self, answer: Answer<T>) -> Answer<T> {
        if let Err(Trouble::Dead(_)) = answer {
            self.life.over.cancel();
        }
        answer
    }

    /// Proves that the lease was alive after this call began, at the leader that a majority has.
    ///
    /// A keepalive alone proves nothing: a member that was the leader and does not know better answers it too. The session's
    /// key is read after it, which a majority stands behind. If the term is the same before and after, the keepalive
    /// went to the leader of that term, and no other one can have ended the lease meanwhile.
    pub(super) async fn renew(&self) -> Answer<()> {
        let asked = self.clock.now();
        let _one_at_a_time = self.proving.lock().await;
        // Another call's proof began after this call.
        if self.proved.load(Ordering::Acquire) > asked {
            return Ok(());
        }
        let connection = self.judged(self.client.up().await)?;
        for _ in 0..3 {
            let sent = self.clock.now();
            let lease = connection.beat(self.lease).await?;
            let (there, term) = self.look_at_watched(&connection).await?;
            if lease.ttl <= 0 || !there {
                let gone = "the lease was revoked, or ran out".to_owned();
                return self.judged(Err(Trouble::Dead(gone)));
            }
            let terms = [lease.header.map_or(0, |header| header.raft_term), term];
            let before = connection.term.swap(term, Ordering::AcqRel);
            if terms == [before; 2] {
                let _ = self.proved.fetch_max(sent, Ordering::AcqRel);
                return Ok(());
            }
        }
        Err(Trouble::Unknown("the leader changes".to_owned()))
    }

    /// Whether the session's key exists, and the term in which a majority says so. What the claims of this session watch
    /// is looked at by the same requests: their events come over another stream, and may be on their way.
    async fn look_at_watched(&self, connection: &Connection) -> Answer<(bool, u64)> {
        let (mut there, mut term) = (true, 0);
        let watched = self.client.watches_of(self.lease);
        // A transaction has at most 128 operations.
        let mut rest = &watched[..];
        loop {
            let (some, more) = rest.split_at(rest.len().min(100));
            let mut txn = Txn::new().then(range(&self.session_key()));
            for watch in some {
                txn = txn.then(last_change(watch));
            }
            let answer = connection.txn(txn.request()).await?;
            let mut found = ranges(&answer).into_iter();
            there &= found.next().is_some_and(|session| !session.is_empty());
            let header = answer.header.as_ref();
            term = header.map_or(0, |header| header.raft_term).max(term);
            for (watch, found) in some.iter().zip(found) {
                let changed = match found.first() {
                    Some(last) => last.mod_revision >= watch.start_revision,
                    None => watch.range_end.is_empty(),
                };
                if changed {
                    self.client.overtake(watch);
                }
            }
            rest = more;
            if rest.is_empty() {
                return Ok((there, term));
            }
        }
    }

    /// Waits until the server keeps a claim that begins now for the whole of its lease, which is at most three quarters
    /// of this session's.
    pub(super) async fn fresh(&self) -> Answer<()> {
        let stale = || {
            let until = self.proved.load(Ordering::Acquire) + micros(self.given / 4);
            until <= self.clock.now()
        };
        while stale() {
            self.client.again(&self.life.over, || self.renew()).await?;
        }
        Ok(())
    }
}

/// The revision of an answer.
pub(super) fn revision(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

impl From<Trouble> for Fail {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Dead(why) => Self::Over(why),
            Trouble::Denied(why) => Self::Refused(ErrorKind::Denied, why),
            trouble => Self::Refused(ErrorKind::Unavailable, trouble.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_a_third_more_than_its_claims_in_whole_seconds() {
        let seconds = |ms| seconds_for(Duration::from_millis(ms));
        let all = [10_000, 6000, 3000, 2000, 250, 1].map(seconds);
        assert_eq!(all, [14, 8, 4, 3, 1, 1]);
    }
}
