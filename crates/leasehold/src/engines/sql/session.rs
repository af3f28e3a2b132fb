//! One client's life in a database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::lanes::Slot;
use super::op::{Answer, Op};
use super::rows::Key;
use super::world::World;
use crate::claim::{ById, Claim, ClaimId, SessionId};
use crate::engine::{Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::name::Name;
use crate::sync::Shared;

/// A session: a number, and the names it may have claims on. Its claims are rows with deadlines of their own, so it
/// outlives every connection.
pub(super) struct SqlSession {
    id: SessionId,
    world: Arc<World>,
    /// None once it is closed.
    names: Shared<Option<ById<ClaimId, Name>>>,
}

/// How many names one transaction leaves at most.
const AT_ONCE: usize = 256;

impl SqlSession {
    pub(super) async fn open(world: Arc<World>, who: &Identity, inbox: Inbox) -> Result<Arc<Self>> {
        world.ready().await?;
        let id = world.address().session();
        let open = Op::Open(id, who.clone());
        let _ = world.ask(&world.names, &[], open).await?;
        world.enter(id, inbox);
        let names = Shared::from(Some(ById::default()));
        Ok(Arc::new(Self { id, world, names }))
    }

    fn stands(&self, claim: &Claim, standing: Standing) {
        match standing {
            Standing::Held(_) | Standing::Waiting { .. } => {
                self.world.watch.standing(claim.id, standing);
            }
            Standing::Busy | Standing::Gone => self.forget(claim.id),
        }
    }

    /// The claim is not in the line.
    fn forget(&self, claim: ClaimId) {
        self.world.watch.gone(claim);
        if let Some(names) = &mut *self.names.lock() {
            drop(names.remove(&claim));
        }
    }

    fn closed(&self, step: Step) -> Error {
        Error::closed(step).on(self.world.tables.dialect.word())
    }
}

#[async_trait]
impl Session for SqlSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let key = Key::of(&claim.name);
        // Until here a dropped call has left nothing, and the session knows of no claim.
        let slot = self.slot(key, Step::Claim).await?;
        let fresh = match &mut *self.names.lock() {
            None => return Err(self.closed(Step::Claim)),
            Some(names) => names.insert(claim.id, claim.name.clone()).is_none(),
        };
        self.world.watch.add(claim.id, key);
        let answer = slot.run(Op::Claim(claim.clone(), self.id, fresh)).await;
        let standing = match answer.inspect_err(|error| {
            if fresh && !error.may_have_happened() {
                self.forget(claim.id);
            }
        })? {
            Answer::Refused(refusal) => {
                self.forget(claim.id);
                let error = Error::from(refusal).on(self.world.tables.dialect.word());
                return Err(error);
            }
            Answer::Standings(standings) => standings.first().copied(),
            _ => None,
        };
        let standing = standing.unwrap_or(Standing::Gone);
        self.stands(claim, standing);
        Ok(standing)
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        if self.names.lock().is_none() {
            return Err(self.closed(Step::Heartbeat));
        }
        let (tell, mut told) = mpsc::unbounded_channel();
        let op = Op::Beat(claims.to_vec(), self.id, tell);
        let done = self.world.ask(&self.world.beats, &[], op);
        let hear = async {
            while let Some((at, standing)) = told.recv().await {
                self.stands(&claims[at], standing);
                heard(&claims[at], standing);
            }
        };
        // The operation has dropped its sender when its answer is there.
        let (done, ()) = tokio::join!(done, hear);
        done.map(drop)
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let slot = self.slot(Key::of(&claim.name), Step::Release).await?;
        let asked = |names: &ById<ClaimId, Name>| names.contains_key(&claim.id);
        if !self.names.lock().as_ref().is_some_and(asked) {
            return Ok(Release::Gone);
        }
        let answer = slot.run(Op::Release(claim.clone(), used)).await?;
        self.forget(claim.id);
        match answer {
            Answer::Released(release) => Ok(release),
            _ => Ok(Release::Gone),
        }
    }

    async fn close(&self) -> Result<()> {
        let Some(names) = self.names.lock().take() else {
            return Ok(());
        };
        for claim in names.keys() {
            self.world.watch.gone(*claim);
        }
        let names: Vec<_> = names.into_values().collect();
        let mut failed = self.leave_lines(&[]).await.err();
        for some in names.chunks(AT_ONCE) {
            match self.leave_lines(some).await {
                // One line is stuck: the others can be left.
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    for name in some {
                        failed = self
                            .leave_lines(std::slice::from_ref(name))
                            .await
                            .err()
                            .or(failed);
                    }
                }
                left => failed = left.err().or(failed),
            }
        }
        self.world.leave(self.id);
        failed.map_or(Ok(()), Err)
    }
}

impl SqlSession {
    async fn slot(&self, key: Key, step: Step) -> Result<Slot> {
        let slot = self.world.slot(&self.world.names, &[key]).await;
        slot.ok_or_else(|| self.closed(step))
    }

    async fn leave_lines(&self, names: &[Name]) -> Result<()> {
        let keys: Vec<_> = names.iter().map(Key::of).collect();
        let op = Op::Close(self.id, names.to_vec());
        self.world.ask(&self.world.names, &keys, op).await.map(drop)
    }
}

impl Drop for SqlSession {
    fn drop(&mut self) {
        self.world.leave(self.id);
    }
}

impl fmt::Debug for SqlSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlSession({})", self.world.settings.location)
    }
}
