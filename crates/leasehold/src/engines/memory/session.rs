//! One client's life in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::world::World;
use crate::claim::{Claim, SessionId};
use crate::engine::{Heard, Release, Session, Standing};
use crate::error::{Error, Result, Step};

/// A session: its inbox is told of its claims.
#[derive(Debug)]
pub(super) struct MemorySession {
    pub(super) id: SessionId,
    pub(super) world: Arc<World>,
}

impl MemorySession {
    fn join(&self, claim: &Claim) -> Result<Standing> {
        let at = self.world.moment();
        let (answer, told) = {
            let state = &mut *self.world.state.lock();
            if !state.sessions.contains_key(&self.id) {
                return Err(Error::closed(Step::Claim).on("memory"));
            }
            let kept = match state.lines.get_mut(&claim.name) {
                Some(kept) => kept,
                None => state.lines.entry(claim.name.clone()).or_default(),
            };
            let (answer, changes) = kept.line.claim(&claim.ask(self.id), at);
            if answer.is_err() {
                kept.list(&claim.name, &mut state.idle);
            }
            (answer, state.address(changes, None))
        };
        self.world.tell(told);
        Ok(answer?)
    }

    fn leave(&self, claim: &Claim, used: u32) -> Release {
        let at = self.world.moment();
        let (release, told) = {
            let state = &mut *self.world.state.lock();
            let Some(kept) = state.lines.get_mut(&claim.name) else {
                return Release::Gone;
            };
            let (release, changes) = kept.line.release(claim.id, used, at);
            kept.list(&claim.name, &mut state.idle);
            state.tidy(at);
            (release, state.address(changes, None))
        };
        self.world.tell(told);
        release
    }
}

#[async_trait]
impl Session for MemorySession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.join(claim)
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        let at = self.world.moment();
        let mut told = Vec::new();
        let mut standings = Vec::with_capacity(claims.len());
        {
            let state = &mut *self.world.state.lock();
            for claim in claims {
                let Some(kept) = state.lines.get_mut(&claim.name) else {
                    standings.push(Standing::Gone);
                    continue;
                };
                let (standing, changes) = kept.line.heartbeat(claim.id, at);
                kept.list(&claim.name, &mut state.idle);
                standings.push(standing);
                told.extend(state.address(changes, None));
            }
            state.tidy(at);
        }
        self.world.tell(told);
        for (claim, standing) in claims.iter().zip(standings) {
            heard(claim, standing);
        }
        Ok(())
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        Ok(self.leave(claim, used))
    }

    async fn close(&self) -> Result<()> {
        let at = self.world.moment();
        let told = {
            let state = &mut *self.world.state.lock();
            drop(state.sessions.remove(&self.id));
            let mut changes = Vec::new();
            for (name, kept) in &mut state.lines {
                changes.extend(kept.line.sweep_dead(at, |session| session == self.id));
                kept.list(name, &mut state.idle);
            }
            state.tidy(at);
            state.address(changes, None)
        };
        self.world.tell(told);
        Ok(())
    }
}
