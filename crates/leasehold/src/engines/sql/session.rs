//! One client's life in a database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::op::{Answer, Book, Op, Owner};
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
    names: Book,
}

/// How many names one transaction leaves at most.
const AT_ONCE: usize = 256;

impl SqlSession {
    pub(super) async fn open(world: Arc<World>, who: &Identity, inbox: Inbox) -> Result<Arc<Self>> {
        world.ready().await?;
        let id = world.address().session();
        let open = Op::Open(id, who.clone());
        // The first heartbeat finds a connection that is there: it has a third of a lease.
        let _ = world.ask(&world.beats, Vec::new(), open).await?;
        world.enter(id, inbox);
        let names = Arc::new(Shared::from(Some(ById::default())));
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
}

#[async_trait]
impl Session for SqlSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let op = Op::Claim(claim.clone(), self.owner());
        let standing = match self.ask(&claim.name, op).await? {
            Answer::Refused(refusal) => {
                self.forget(claim.id);
                let error = Error::from(refusal).on(self.world.tables().dialect.word());
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
            return Err(self.world.closed(Step::Heartbeat));
        }
        let (tell, mut told) = mpsc::unbounded_channel();
        let op = Op::Beat(claims.to_vec(), self.id, tell);
        let done = self.world.ask(&self.world.beats, Vec::new(), op);
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
        let op = Op::Release(claim.clone(), used, self.owner());
        let answer = self.ask(&claim.name, op).await?;
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
    fn owner(&self) -> Owner {
        Owner {
            session: self.id,
            book: self.names.clone(),
            fresh: false,
        }
    }

    async fn ask(&self, name: &Name, op: Op) -> Result<Answer> {
        self.world
            .ask(&self.world.names, vec![Key::of(name)], op)
            .await
    }

    async fn leave_lines(&self, names: &[Name]) -> Result<()> {
        let keys: Vec<_> = names.iter().map(Key::of).collect();
        let op = Op::Close(self.id, names.to_vec());
        self.world.ask(&self.world.names, keys, op).await.map(drop)
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
