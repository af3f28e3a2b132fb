//! One use of a grant, and the right to go to the engine: values whose `Drop` passes them on.

use std::sync::Arc;
use std::time::Duration;

use super::queue::Queue;
use super::request::Request;
use crate::engine::Release;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::session::Grant;

/// One use of a grant by one task. Dropping it ends the turn, in the background where the engine must be told.
pub(crate) struct Turn {
    /// None once it has ended.
    queue: Option<Arc<Queue>>,
    grant: Arc<Grant>,
    fence: Fence,
}

/// The use of a grant after a turn on it has ended.
pub(super) enum End {
    /// Another task uses it, or it is kept for a while.
    Kept,
    /// No task needs it: give it back.
    Release,
}

impl Turn {
    pub(super) fn new(queue: Arc<Queue>, grant: Arc<Grant>, fence: Fence) -> Self {
        let queue = Some(queue);
        Self {
            queue,
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
            Some(queue) => queue.manager().release(&self.grant).await,
            None if self.grant.why_lost().is_some() => Ok(Release::Gone),
            None => Ok(Release::Released),
        }
    }

    /// Ends the turn, once. Says where the grant is to be given back, if it is.
    fn end(&mut self) -> Option<Arc<Queue>> {
        let queue = self.queue.take()?;
        match queue.finish(&self.grant, self.fence) {
            End::Release => Some(queue),
            End::Kept => None,
        }
    }

    /// Goes on as a reader.
    pub(crate) async fn downgrade(&self) -> Result<()> {
        let Some(queue) = &self.queue else {
            return Ok(());
        };
        queue.downgrade(&self.grant, self.fence).await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(queue) = self.end() {
            queue.manager().discard(&self.grant);
        }
    }
}

/// The right of one task at a time to go to the engine for a name. Dropping it lets the next one go.
pub(super) struct EngineTurn {
    /// None once it was used.
    queue: Option<Arc<Queue>>,
}

impl EngineTurn {
    pub(super) fn new(queue: &Arc<Queue>) -> Self {
        let queue = Some(queue.clone());
        Self { queue }
    }

    /// The engine, or the way to it, failed. An error of this request alone lets the next task go.
    pub(super) fn failed(mut self, error: &Error, lease: Duration) {
        if error.is_for_all()
            && let Some(queue) = self.queue.take()
        {
            queue.fail_engine(error, lease);
        }
    }

    /// The engine said yes.
    pub(super) fn granted(mut self, request: &Request, grant: Arc<Grant>) -> Option<Turn> {
        self.queue
            .take()
            .map(|queue| queue.enter(request, grant, true))
    }
}

impl Drop for EngineTurn {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            queue.leave_engine();
        }
    }
}
