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
        match self.give_back_now(grant) {
            Some(answer) => answer,
            // In a box: with the call and its timer inside, a release would be large to move.
            None => Box::pin(self.give_back_soon(grant)).await,
        }
    }

    /// Gives a grant back to an engine that is near; none if it is not, and then nothing has happened.
    fn give_back_now(&self, grant: &Arc<Grant>) -> Option<Result<Release>> {
        if grant.why_lost().is_some() {
            let _open = Open::new(&*self.reaper.progress);
            self.discard(grant);
            return Some(Ok(Release::Gone));
        }
        let answer = self.session.release_now(&grant.claim, grant.turns())?;
        if answer.is_err() {
            self.reap(grant);
        }
        // Not before the answer: a shutdown waits for what is in the table.
        let _ = self.take_out(grant.claim.id);
        Some(given_back(grant, answer))
    }

    /// Gives a grant back to an engine whose answer is waited for.
    async fn give_back_soon(&self, grant: &Arc<Grant>) -> Result<Release> {
        // Counted before it leaves the table, so that a shutdown waits for it.
        let _open = Open::new(&*self.reaper.progress);
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
        given_back(grant, answer)
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

/// What the engine said of a grant it was given back.
fn given_back(grant: &Grant, answer: Result<Release>) -> Result<Release> {
    if matches!(answer, Ok(Release::Gone)) {
        grant.lose(Ended::Forgotten);
    }
    answer.map_err(|error| error.of(&grant.claim.name))
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
