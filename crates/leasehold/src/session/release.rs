//! The way of a grant back to the engine.

use std::sync::Arc;

use super::grant::Grant;
use super::manager::{Manager, patience};
use super::reaper::Open;
use super::timeout::within;
use crate::engine::{Ended, Release};
use crate::error::{Error, ErrorKind, Result, Step};

impl Manager {
    /// Gives a grant back and says whether it was still ours. The caller has just looked at its state.
    pub(crate) async fn release(&self, grant: &Arc<Grant>) -> Result<Release> {
        // Counted before it leaves the table, so that a shutdown waits for it.
        let _open = Open::new(&*self.reaper.progress);
        if grant.why_lost().is_some() {
            self.discard(grant);
            return Ok(Release::Gone);
        }
        let _ = self.take_out(grant.claim.id);
        // Should this future be dropped, or the call fail, the reaper goes on with it.
        let mut backup = Backup(Some((self, grant)));
        let claim = &grant.claim;
        let call = self.session.release(claim, grant.turns());
        let answer = within(patience(claim), call).await;
        let answer = answer.unwrap_or_else(|| {
            let what = "the engine gave no answer within the lease";
            let error = Error::new(ErrorKind::TimedOut, Step::Release, what);
            Err(error.on(self.engine).perhaps())
        });
        if answer.is_ok() {
            backup.0 = None;
        }
        if matches!(answer, Ok(Release::Gone)) {
            grant.lose(Ended::Forgotten);
        }
        answer.map_err(|error| error.of(&claim.name))
    }

    /// Gives a grant back in the background.
    pub(crate) fn discard(&self, grant: &Arc<Grant>) {
        if self.take_out(grant.claim.id) {
            self.reap(grant);
        }
    }

    pub(super) fn reap(&self, grant: &Grant) {
        self.reaper.release(grant.claim(), grant.turns());
    }
}

/// A release under way. Dropping it leaves the rest to the reaper.
struct Backup<'a>(Option<(&'a Manager, &'a Arc<Grant>)>);

impl Drop for Backup<'_> {
    fn drop(&mut self) {
        if let Some((manager, grant)) = self.0.take() {
            manager.reap(grant);
        }
    }
}
