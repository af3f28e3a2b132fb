//! One client's life in Redisson's layout. To Java it is one more Redisson client, and each claim one of its threads.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;

use super::super::client::Reply;
use super::super::error::Trouble;
use super::super::words::who_text;
use super::channels::Waiter;
use super::hub::Hub;
use super::kind::Kind;
use super::script::{self, Run, Said};
use crate::claim::{ById, Claim, ClaimId, Mode, SessionId};
use crate::engine::{Ended, Event, Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::FENCE_BLOCK;
use crate::line::Refusal;
use crate::sync::Shared;

/// A session: the claims that it may have.
pub(super) struct RedissonSession {
    hub: Arc<Hub>,
    id: SessionId,
    who: Arc<Identity>,
    inbox: Inbox,
    mine: Shared<ById<ClaimId, Mine>>,
    this: Weak<Self>,
}

#[derive(Debug, Clone)]
struct Mine {
    claim: Arc<Claim>,
    held: bool,
}

/// Asked again this soon where nothing says when the holder ends.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One script works through all permits of a claim.
const MOST_PERMITS: u32 = 1000;

impl RedissonSession {
    pub(super) fn open(hub: Arc<Hub>, who: &Identity, inbox: Inbox) -> Arc<Self> {
        let id = SessionId::random();
        let session = Arc::new_cyclic(|this| Self {
            hub,
            id,
            who: Arc::new(who.clone()),
            inbox,
            mine: Shared::default(),
            this: this.clone(),
        });
        session.hub.add(id, &session);
        session
    }

    pub(super) fn tell(&self, event: Event) {
        self.inbox.deliver(event);
    }

    /// An eviction took the lock away from these owners.
    pub(super) fn evicted(&self, owners: &[String], by: &str, why: &str) {
        let mine: Vec<_> = self.mine.lock().keys().copied().collect();
        for id in mine
            .into_iter()
            .filter(|id| owners.contains(&self.owner(*id)))
        {
            self.forget(id);
            self.tell(Event::Ended(
                id,
                Ended::Evicted {
                    by: by.to_owned(),
                    why: why.to_owned(),
                },
            ));
        }
    }

    fn kind(&self, claim: &Claim) -> Kind {
        self.hub.kinds.of(claim.mode)
    }

    /// A claim as Redisson names the thread of a client: a UUID and a number.
    fn owner(&self, claim: ClaimId) -> String {
        owner(self.id, claim)
    }

    fn channel(&self, claim: &Claim) -> String {
        self.kind(claim)
            .waits_on(&claim.name, &self.owner(claim.id))
    }

    fn forget(&self, id: ClaimId) {
        let known = self.mine.lock().remove(&id);
        if let Some(known) = known.filter(|known| !known.held) {
            let _ = self.hub.leave(&self.channel(&known.claim), id);
        }
    }

    /// Whether a claim holds, or waits and has not ended; none if it is not there.
    fn known(&self, claim: &Claim) -> Option<bool> {
        // First: one that is granted meanwhile holds before it leaves its channel.
        let waits = self.hub.channels.heard(&self.channel(claim), claim.id);
        let mut mine = self.mine.lock();
        let held = mine.get(&claim.id)?.held;
        if !held && !waits {
            drop(mine.remove(&claim.id));
            return None;
        }
        Some(held)
    }

    fn is_mine(&self, id: ClaimId) -> bool {
        self.mine.lock().contains_key(&id)
    }

    fn hold(&self, claim: &Claim) {
        if let Some(known) = self.mine.lock().get_mut(&claim.id) {
            known.held = true;
        }
        let _ = self.hub.leave(&self.channel(claim), claim.id);
    }

    fn run_claim(&self, claim: &Claim) -> Run {
        Run::claim(
            self.kind(claim),
            claim,
            &self.owner(claim.id),
            &who_text(&self.who),
        )
    }

    /// Tries once. A claim that was released meanwhile is not kept.
    async fn attempt(&self, claim: &Claim) -> std::result::Result<Said, Trouble> {
        let said = script::said(self.hub.run(&self.run_claim(claim)).await?)?;
        self.settle(claim, said).await
    }

    async fn settle(&self, claim: &Claim, said: Said) -> std::result::Result<Said, Trouble> {
        if self.is_mine(claim.id) {
            if let Said::Held(_) = said {
                self.hold(claim);
            }
            return Ok(said);
        }
        let run = Run::release(self.kind(claim), claim, &self.owner(claim.id), 0);
        let _ = self.hub.run(&run).await?;
        Ok(Said::Gone)
    }

    /// A message came: tries for a claim that waits, and tells if it holds now.
    pub(super) async fn try_waiting(&self, claim: &Claim) {
        match self.attempt(claim).await {
            Ok(Said::Held(held)) => self.tell(Event::Granted(claim.id, held)),
            Ok(_) => {}
            Err(trouble) => tracing::debug!(?trouble, "the try after a release message failed"),
        }
    }

    /// Listens first, and tries again: a release between the first try and the subscription is not missed.
    async fn wait(&self, claim: &Arc<Claim>) -> std::result::Result<Said, Trouble> {
        let channel = self.channel(claim);
        let waiter = Waiter::new(claim.clone(), self.this.clone(), self.who.clone());
        self.hub.channels.join(&channel, waiter);
        self.hub.subscribe(&channel).await?;
        match self.hub.channels.ahead(&channel, claim.id) {
            0 => self.attempt(claim).await,
            _ => Ok(Said::Busy(Some(claim.lease))),
        }
    }

    fn waiting(&self, claim: &Claim, look_again: Option<Duration>) -> Standing {
        let ahead = self.hub.channels.ahead(&self.channel(claim), claim.id) + 1;
        Standing::Waiting {
            ahead: u32::try_from(ahead).unwrap_or(u32::MAX),
            look_again: look_again.unwrap_or(LOOK_AGAIN),
        }
    }

    async fn claim_once(
        &self,
        claim: &Arc<Claim>,
        first: bool,
    ) -> std::result::Result<Said, Trouble> {
        if first {
            let mine = Mine {
                claim: claim.clone(),
                held: false,
            };
            let _ = self.mine.lock().insert(claim.id, mine);
        }
        // A new waiter goes behind the waiters of this process.
        if first && claim.waits && self.hub.channels.ahead(&self.channel(claim), claim.id) > 0 {
            return self.wait(claim).await;
        }
        match self.attempt(claim).await? {
            Said::Busy(_) if claim.waits && first => self.wait(claim).await,
            said => Ok(said),
        }
    }

    /// Where a claim stands after the script has said this.
    fn standing(&self, claim: &Claim, said: Said) -> Result<Standing> {
        let refused = match said {
            Said::Held(held) => return Ok(Standing::Held(held)),
            Said::Busy(look_again) if claim.waits => return Ok(self.waiting(claim, look_again)),
            Said::Busy(_) => Ok(Standing::Busy),
            Said::Gone => Ok(Standing::Gone),
            Said::Capacity(capacity) => Err(Error::from(Refusal::Capacity(capacity))),
            Said::Full => Err(Error::from(Refusal::Full)),
            Said::Kind => {
                let what = "the name is in use as another kind of Redisson lock: use it so, or wait until it is free";
                Err(Error::new(ErrorKind::Conflict, Step::Claim, what))
            }
        };
        self.forget(claim.id);
        refused.map_err(|error| error.on("redisson"))
    }

    /// What a heartbeat's answer says of one claim; none if it says nothing.
    async fn beaten(
        &self,
        claim: &Arc<Claim>,
        held: bool,
        answer: std::result::Result<Vec<Reply>, Trouble>,
    ) -> Result<Option<Standing>> {
        let Ok(said) = answer.and_then(script::said) else {
            return Ok(None);
        };
        let said = match held {
            // A beat takes nothing, so nothing is to be given back if it was released meanwhile.
            true => said,
            false => {
                let settled = self.settle(claim, said).await;
                settled.map_err(|trouble| trouble.at(Step::Heartbeat))?
            }
        };
        self.standing(claim, said).map(Some)
    }
}

#[async_trait]
impl Session for RedissonSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        if !self.hub.is_open(self.id) {
            return Err(Error::closed(Step::Claim).on("redisson"));
        }
        admits(self.kind(claim), claim.mode)?;
        let claim = Arc::new(claim.clone());
        let first = !self.is_mine(claim.id);
        match self.claim_once(&claim, first).await {
            Ok(said) => self.standing(&claim, said),
            Err(trouble) => {
                if first {
                    self.forget(claim.id);
                }
                let error = trouble.at(Step::Claim);
                // Only a fair lock keeps a place in line on the server, also for one that was not told.
                Err(if self.kind(&claim) == Kind::Fair {
                    error.perhaps()
                } else {
                    error
                })
            }
        }
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        let known: Vec<_> = claims.iter().map(|claim| self.known(claim)).collect();
        let asked = claims.iter().zip(&known).filter_map(|(claim, known)| {
            known.map(|held| match held {
                true => Run::beat(self.kind(claim), claim, &self.owner(claim.id)),
                false => self.run_claim(claim),
            })
        });
        let runs: Vec<_> = asked.collect();
        let answers = match runs.is_empty() {
            true => Ok(Vec::new()),
            false => self.hub.run_all(&runs).await,
        };
        let mut answers = answers
            .map_err(|trouble| trouble.at(Step::Heartbeat))?
            .into_iter();
        let mut refused = Ok(());
        for (claim, known) in claims.iter().zip(known) {
            let Some(answer) = known.and_then(|_| answers.next()) else {
                heard(claim, Standing::Gone);
                continue;
            };
            match self.beaten(claim, known == Some(true), answer).await {
                Ok(Some(standing)) => heard(claim, standing),
                Ok(None) => {}
                // The others have answers of their own.
                Err(error) => refused = Err(error),
            }
        }
        refused
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let waited = {
            let known = self.mine.lock().remove(&claim.id);
            known.is_some_and(|known| !known.held)
        };
        let left = waited && self.hub.leave(&self.channel(claim), claim.id);
        let run = Run::release(self.kind(claim), claim, &self.owner(claim.id), used);
        let answer = self.hub.run(&run).await.and_then(script::released);
        match answer.map_err(|trouble| trouble.at(Step::Release))? {
            // A plain layout has no waiting list: the place was here.
            Release::Gone if left => Ok(Release::Released),
            release => Ok(release),
        }
    }

    async fn close(&self) -> Result<()> {
        self.hub.remove(self.id);
        let mine: Vec<_> = self
            .mine
            .lock()
            .values()
            .map(|mine| mine.claim.clone())
            .collect();
        for claim in mine {
            let _ = self.release(&claim, FENCE_BLOCK).await?;
        }
        Ok(())
    }
}

/// Refuses modes that the layout cannot store, before the claim waits.
fn admits(kind: Kind, mode: Mode) -> Result<()> {
    let refuse =
        |what: String| Err(Error::new(ErrorKind::Unsupported, Step::Claim, what).on("redisson"));
    match (kind, mode) {
        (Kind::Permits, Mode::Permits { count, .. }) if count > MOST_PERMITS => refuse(format!(
            "at most {MOST_PERMITS} permits at once in this layout; {count} were asked for"
        )),
        (Kind::Semaphore | Kind::Permits, Mode::Permits { of, .. }) if of > i32::MAX as u32 => {
            refuse(format!("Java counts permits in 31 bits; {of} do not fit"))
        }
        _ => Ok(()),
    }
}

pub(super) fn owner(session: SessionId, claim: ClaimId) -> String {
    let bits = session.as_u128() & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    let uuid = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-");
    // A thread number of Java's is positive and has 63 bits.
    format!("{uuid}:{}", (claim.as_u128() as u64) >> 1)
}

impl fmt::Debug for RedissonSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedissonSession({:?})", self.hub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_look_like_those_of_redisson() {
        let text = owner(SessionId::from_u128(u128::MAX), ClaimId::from_u128(7));
        assert_eq!(text, "ffffffff-ffff-4fff-bfff-ffffffffffff:3");
    }
}
