//! One client's life in a database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::op::{Answer, Op};
use super::rows::Key;
use super::world::World;
use crate::claim::{ById, Claim, ClaimId, SessionId};
use crate::engine::{Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
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

/// How many names one transaction locks at most.
const AT_ONCE: usize = 256;

impl SqlSession {
    pub(super) async fn open(world: Arc<World>, who: &Identity, inbox: Inbox) -> Result<Arc<Self>> {
        world.ready().await?;
        let id = world.address().session();
        let _ = world.ask(0, Op::Open(id, who.clone())).await?;
        world.enter(id, inbox);
        let names = Shared::from(Some(ById::default()));
        Ok(Arc::new(Self { id, world, names }))
    }

    /// What is asked about one name goes over one connection.
    fn lane(&self, name: &Name) -> usize {
        (Key::of(name).0 % self.world.lanes() as u128) as usize
    }

    fn stands(&self, claim: &Claim, standing: Standing) {
        match standing {
            Standing::Held(_) | Standing::Waiting { .. } => {
                self.world.watch.standing(claim.id, standing);
                if let Some(names) = &mut *self.names.lock() {
                    drop(names.insert(claim.id, claim.name.clone()));
                }
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
        match &mut *self.names.lock() {
            None => return Err(self.closed(Step::Claim)),
            Some(names) => drop(names.insert(claim.id, claim.name.clone())),
        }
        let op = Op::Claim(claim.clone(), self.id);
        let standing = match self.world.ask(self.lane(&claim.name), op).await? {
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
        for some in claims.chunks(AT_ONCE) {
            let op = Op::Beat(some.to_vec(), self.id);
            if let Answer::Standings(standings) = self.world.ask_aside(op).await? {
                for (claim, standing) in some.iter().zip(standings) {
                    self.stands(claim, standing);
                    heard(claim, standing);
                }
            }
        }
        Ok(())
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let op = Op::Release(claim.clone(), used);
        let answer = self.world.ask(self.lane(&claim.name), op).await?;
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
        // Each after the claims that are still under way on its connection.
        let mut by_lane = std::collections::BTreeMap::<usize, Vec<Name>>::new();
        for name in names.into_values() {
            let lane = self.lane(&name);
            by_lane.entry(lane).or_default().push(name);
        }
        if by_lane.is_empty() {
            let _ = by_lane.insert(0, Vec::new());
        }
        let mut failed = None;
        for (lane, names) in by_lane {
            for some in names
                .chunks(AT_ONCE)
                .chain(names.is_empty().then_some(&[][..]))
            {
                let closed = self.world.ask(lane, Op::Close(self.id, some.to_vec()));
                failed = closed.await.err().or(failed);
            }
        }
        self.world.leave(self.id);
        failed.map_or(Ok(()), Err)
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
