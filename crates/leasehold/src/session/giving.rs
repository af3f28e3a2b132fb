//! The way of a grant back to the engine.

use std::sync::Arc;

use super::answer::within;
use super::grant::Grant;
use super::keeper::{Keeper, patience};
use super::reaper::Open;
use crate::engine::{Ended, Release};
use crate::error::{Error, ErrorKind, Result, Step};

impl Keeper {
    /// Gives a grant back and says whether it was still ours. The caller has just looked at its state.
    pub(crate) async fn give_back(&self, grant: &Arc<Grant>) -> Result<Release> {
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
            let what = "no answer within the lease";
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
        self.reaper.give_back(grant.claim(), grant.turns());
    }
}

/// A release under way. Dropping it leaves the rest to the reaper.
struct Backup<'a>(Option<(&'a Keeper, &'a Arc<Grant>)>);

impl Drop for Backup<'_> {
    fn drop(&mut self) {
        if let Some((keeper, grant)) = self.0.take() {
            keeper.reap(grant);
        }
    }
}
