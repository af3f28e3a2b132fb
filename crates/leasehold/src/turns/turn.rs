//! One use of a grant, and the right to go to the engine: values whose `Drop` passes them on.

use std::sync::Arc;
use std::time::Duration;

use super::ask::Ask;
use super::local::Local;
use crate::engine::Release;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::session::Grant;

/// One use of a grant by one task. Dropping it ends the turn, in the background where the engine must be told.
pub(crate) struct Turn {
    /// None once it has ended.
    local: Option<Arc<Local>>,
    grant: Arc<Grant>,
    fence: Fence,
}

/// What to do with a grant when a turn on it has ended.
pub(super) enum End {
    /// Another task uses it, or it is kept for a while.
    Kept,
    /// No task needs it: give it back.
    GiveBack,
}

impl Turn {
    pub(super) fn new(local: Arc<Local>, grant: Arc<Grant>, fence: Fence) -> Self {
        let local = Some(local);
        Self {
            local,
            grant,
            fence,
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    pub(crate) fn grant(&self) -> &Arc<Grant> {
        &self.grant
    }

    /// Ends the turn and says whether the lock was still held.
    pub(crate) async fn release(mut self) -> Result<Release> {
        match self.end() {
            Some(local) => local.keeper().give_back(&self.grant).await,
            None if self.grant.why_lost().is_some() => Ok(Release::Gone),
            None => Ok(Release::Released),
        }
    }

    /// Ends the turn, once. Says where the grant is to be given back, if it is.
    fn end(&mut self) -> Option<Arc<Local>> {
        let local = self.local.take()?;
        match local.finish(&self.grant, self.fence) {
            End::GiveBack => Some(local),
            End::Kept => None,
        }
    }

    /// Goes on as a reader.
    pub(crate) async fn downgrade(&self) -> Result<()> {
        let Some(local) = &self.local else {
            return Ok(());
        };
        local.downgrade(&self.grant, self.fence).await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(local) = self.end() {
            local.keeper().discard(&self.grant);
        }
    }
}

/// The right of one task at a time to go to the engine for a name. Dropping it lets the next one go.
pub(super) struct Front {
    /// None once it was used.
    local: Option<Arc<Local>>,
}

impl Front {
    pub(super) fn new(local: &Arc<Local>) -> Self {
        let local = Some(local.clone());
        Self { local }
    }

    /// The engine, or the way to it, failed. What concerns this request alone lets the next task go.
    pub(super) fn failed(mut self, error: &Error, lease: Duration) {
        if error.is_for_all()
            && let Some(local) = self.local.take()
        {
            local.fail_front(error, lease);
        }
    }

    /// The engine said yes.
    pub(super) fn granted(mut self, ask: &Ask, grant: Arc<Grant>) -> Option<Turn> {
        self.local.take().map(|local| local.enter(ask, grant, true))
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        if let Some(local) = &self.local {
            local.leave_front();
        }
    }
}
