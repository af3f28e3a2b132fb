//! One client's life in Redis. Nothing of it is on the server but its claims.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::super::error::Trouble;
use super::super::keys::{Bucket, session_text};
use super::super::words::who_text;
use super::answer::{self, Answer, Since};
use super::calls::{Make, each};
use super::pushed::{self, Mine, Phase};
use super::script::Run;
use super::servers::Servers;
use crate::claim::{ById, Claim, ClaimId, SessionId};
use crate::engine::{Clock, Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
use crate::fence::FENCE_BLOCK;
use crate::sync::Shared;

/// A session: the claims that it may have.
pub(super) struct RedisSession {
    pub(super) servers: Arc<Servers>,
    id: SessionId,
    /// The session as claims name it.
    text: String,
    who: String,
    /// Claims that may be in a line, to be released when the session closes.
    pub(super) mine: Shared<ById<ClaimId, Mine>>,
    /// As many are kept before those go that are over.
    room: AtomicUsize,
}

/// So many claims are kept at least, also of those that are over.
const ROOM: usize = 1_000;

/// How long closing may take.
const CLOSING: Duration = Duration::from_secs(60);

/// How many calls of the script grant to all waiters of a line.
const MOST_CALLS: u32 = 100;

impl RedisSession {
    pub(super) fn open(servers: Arc<Servers>, who: &Identity, inbox: Inbox) -> Arc<Self> {
        let id = SessionId::random();
        let session = Arc::new(Self {
            id,
            text: session_text(&servers.address, id),
            who: who_text(who),
            mine: Shared::default(),
            room: AtomicUsize::new(ROOM),
            servers,
        });
        let listening = pushed::listening(Arc::downgrade(&session), inbox);
        session.servers.mailbox.add(id, listening);
        session
    }

    /// Says that claims are alive, and tells where each stands. The last trouble of one that could not be asked.
    pub(super) async fn beat(
        &self,
        claims: &[Arc<Claim>],
        mut tell: impl FnMut(&Claim, Standing),
    ) -> std::result::Result<(), Trouble> {
        let longest = claims.iter().map(|claim| claim.lease).max();
        let patience = longest.unwrap_or_default() / 4;
        let mut failed = None;
        each(
            &self.servers,
            claims,
            Run::beat,
            patience,
            |claim, said| match said.and_then(answer::standing) {
                Ok(answer) => {
                    self.stands(claim.id, &answer, None);
                    tell(claim, answer.standing.unwrap_or(Standing::Gone));
                }
                Err(trouble) => failed = Some(trouble),
            },
        )
        .await;
        failed.map_or(Ok(()), Err)
    }

    /// A claim is about to be asked for, again perhaps.
    fn note(&self, claim: &Claim) {
        let (asked, now) = (Arc::new(claim.clone()), Clock::boot().now());
        let mut mine = self.mine.lock();
        // Claims whose release never got through, in an outage.
        if mine.len() >= self.room.load(Ordering::Relaxed) {
            mine.retain(|_, mine| !mine.is_over(now));
            self.room.store(ROOM.max(mine.len() * 2), Ordering::Relaxed);
        }
        let again = |mine: &mut Mine| (mine.claim, mine.heard) = (asked.clone(), now);
        let new = || Mine::new(asked.clone());
        let _ = mine.entry(claim.id).and_modify(again).or_insert_with(new);
    }

    /// Remembers where a claim stands.
    fn stands(&self, id: ClaimId, answer: &Answer, alone: Option<Since>) {
        let mut mine = self.mine.lock();
        if let Some(mine) = mine.get_mut(&id) {
            mine.heard = Clock::boot().now();
        }
        match (answer.standing, mine.get_mut(&id)) {
            (Ok(Standing::Held(_)), Some(mine)) => {
                mine.phase = Phase::Holds;
                mine.alone = alone.or(mine.alone);
            }
            (Ok(Standing::Waiting { .. }), Some(mine)) => mine.waits(answer.now),
            (Ok(Standing::Busy | Standing::Gone) | Err(_), _) => drop(mine.remove(&id)),
            (_, None) => {}
        }
    }

    /// A claim that surely is in no line needs no release.
    fn refused(&self, id: ClaimId, error: Error) -> Error {
        let mut mine = self.mine.lock();
        let asked = mine.get(&id).is_some_and(|mine| mine.phase == Phase::Asked);
        if asked && !error.may_have_happened() {
            let _ = mine.remove(&id);
        }
        error
    }

    /// Grants that are left after a release: one call of the script makes some hundred. A call that fails is made up for
    /// by the next heartbeat of any waiter.
    async fn go_on(&self, bucket: Bucket, claim: &Claim) {
        for _ in 0..MOST_CALLS {
            let run = Run::release(&self.servers.config.keys, &[claim], FENCE_BLOCK);
            let answered = self.servers.run(bucket, &run).await;
            if !matches!(answered.and_then(answer::released), Ok((_, true))) {
                return;
            }
        }
    }

    pub(super) fn forget(&self, id: ClaimId) {
        let _ = self.mine.lock().remove(&id);
    }
}

#[async_trait]
impl Session for RedisSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        if !self.servers.mailbox.is_open(self.id) {
            return Err(Error::closed(Step::Claim).on("redis"));
        }
        self.note(claim);
        let run = Run::claim(&self.servers.config.keys, claim, &self.text, &self.who);
        let answered = self.servers.run(Bucket::of(&claim.name), &run).await;
        let (answer, alone) = answered
            .and_then(answer::claimed)
            .map_err(|trouble| self.refused(claim.id, trouble.at(Step::Claim)))?;
        self.stands(claim.id, &answer, alone);
        answer
            .standing
            .map_err(|refusal| Error::from(refusal).on("redis"))
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        let beat = self.beat(claims, heard).await;
        beat.map_err(|trouble| trouble.at(Step::Heartbeat))
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let keys = &self.servers.config.keys;
        let alone = self.mine.lock().get(&claim.id).and_then(|mine| mine.alone);
        let run = match alone {
            Some(since) => Run::free(keys, claim, since, used),
            None => Run::release(keys, &[claim], used),
        };
        let bucket = Bucket::of(&claim.name);
        let answered = self.servers.run(bucket, &run).await;
        let (release, more) = answered
            .and_then(answer::released)
            .map_err(|trouble| trouble.at(Step::Release))?;
        self.forget(claim.id);
        if more {
            self.go_on(bucket, claim).await;
        }
        Ok(release)
    }

    async fn close(&self) -> Result<()> {
        self.servers.mailbox.remove(self.id);
        let mine: Vec<_> = {
            let mine = self.mine.lock();
            mine.values().map(|mine| mine.claim.clone()).collect()
        };
        // How many fences were spent is not known here: all of them.
        let release: Make = |keys, claims| Run::release(keys, claims, FENCE_BLOCK);
        let mut failed = None;
        // A silent server is noticed by its link; many claims just take their time.
        each(
            &self.servers,
            &mine,
            release,
            CLOSING,
            |claim, said| match said {
                Ok(_) => self.forget(claim.id),
                Err(trouble) => failed = Some(trouble),
            },
        )
        .await;
        failed.map_or(Ok(()), |trouble| Err(trouble.at(Step::Close)))
    }
}

impl fmt::Debug for RedisSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisSession({:?})", self.servers)
    }
}
