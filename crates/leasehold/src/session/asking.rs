//! The way of a claim from asking to holding.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::answer::within;
use super::grant::Grant;
use super::keeper::{Keeper, patience};
use super::table::{Entry, Outcome, Phase};
use crate::claim::{Claim, ClaimId};
use crate::clock::{Micros, micros};
use crate::engine::{Ended, Held, Standing};
use crate::error::{Error, ErrorKind, Result, Step};

impl Keeper {
    /// Asks the engine, and waits if the claim waits; none if a try found no room. Dropped at any await, it leaves at
    /// most one release behind.
    pub(crate) async fn ask(
        &self,
        mut claim: Claim,
        keep_alive: bool,
    ) -> Result<Option<Arc<Grant>>> {
        // Whether the engine may still have an earlier claim of this request: then an error leaves that open too.
        let mut left = false;
        let error = loop {
            // Armed before the first byte leaves.
            let armed = match self.arm(&claim, keep_alive) {
                Ok(armed) => armed,
                Err(closed) => break closed,
            };
            let sent = self.clock.now();
            let outcome = self.attempt(&claim, sent).await;
            match outcome {
                Ok(Outcome::Granted(held)) => {
                    armed.disarm();
                    return self.granted(claim, sent, held).map(Some);
                }
                Ok(Outcome::Busy) => {
                    armed.forget();
                    return Ok(None);
                }
                Ok(Outcome::Ended(Ended::Down(why))) => break self.down(&claim, &why),
                // Our place in line is gone (a pause, an eviction): join again, as somebody new.
                Ok(Outcome::Ended(_)) => {}
                Ok(Outcome::Late) => left = true,
                Err(error) => break armed.failed(error.of(&claim.name)),
            }
            drop(armed);
            claim = anew(claim);
        };
        Err(if left { error.perhaps() } else { error })
    }

    /// One claim, from the first byte to the end of its wait.
    async fn attempt(&self, claim: &Claim, sent: Micros) -> Result<Outcome> {
        let answer = within(patience(claim), self.session.claim(claim)).await;
        Ok(match answer.ok_or_else(|| self.late(claim))?? {
            Standing::Busy => Outcome::Busy,
            Standing::Gone => Outcome::Ended(Ended::Forgotten),
            Standing::Held(held) => Outcome::Granted(held),
            Standing::Waiting { look_again, .. } => match self.wait(claim, sent, look_again) {
                Ok(outcome) => outcome,
                Err(told) => {
                    let down = || Outcome::Ended(Ended::Down("the client is gone".to_owned()));
                    told.await.unwrap_or_else(|_| down())
                }
            },
        })
    }

    pub(super) fn late(&self, claim: &Claim) -> Error {
        Error::new(
            ErrorKind::TimedOut,
            Step::Claim,
            "the answer did not come within the lease",
        )
        .on(self.engine)
        .of(&claim.name)
        .perhaps()
    }

    fn down(&self, claim: &Claim, why: &str) -> Error {
        if self.is_closing() {
            return Error::closed(Step::Wait).of(&claim.name);
        }
        let what = format!("the session ended: {why}");
        let error = Error::new(ErrorKind::Unavailable, Step::Wait, what);
        error.on(self.engine).of(&claim.name)
    }

    fn arm<'a>(&'a self, claim: &'a Claim, keep_alive: bool) -> Result<Armed<'a>> {
        let entry = Entry::new(claim.lease, keep_alive);
        let mut table = self.table.lock();
        // Looked at under the lock: after `close` has gone through the table nothing new gets in.
        if self.is_closing() {
            return Err(Error::closed(Step::Claim).of(&claim.name));
        }
        let _ = table.insert(claim.id, entry);
        Ok(Armed {
            keeper: self,
            claim: Some(claim),
        })
    }

    /// The engine let the claim into its line. The grant may have come before this reply.
    fn wait(
        &self,
        claim: &Claim,
        sent: Micros,
        look_again: Duration,
    ) -> Result<Outcome, oneshot::Receiver<Outcome>> {
        let (tell, told) = oneshot::channel();
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(&claim.id) else {
            return Ok(Outcome::Ended(Ended::Forgotten));
        };
        entry.heard(sent);
        if let Phase::Asking { early } = &mut entry.phase
            && let Some(outcome) = early.take()
        {
            return Ok(outcome);
        }
        if self.is_closing() {
            return Ok(Outcome::Ended(Ended::Down(
                "the client was shut down".into(),
            )));
        }
        entry.phase = Phase::Waiting {
            claim: Arc::new(claim.clone()),
            tell: Some(tell),
        };
        entry.due = entry
            .due
            .min(self.clock.now().saturating_add(micros(look_again)));
        let due = entry.due;
        drop(table);
        self.wake_by(due);
        Err(told)
    }

    /// The entry holds from now on, unless it ended meanwhile or its time is over already.
    fn granted(&self, claim: Claim, sent: Micros, held: Held) -> Result<Arc<Grant>> {
        let now = self.clock.now();
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(&claim.id) else {
            drop(table);
            let late = self.late(&claim);
            self.reaper.give_back(Arc::new(claim), 0);
            return Err(late);
        };
        let grant = match entry.grant() {
            Some(grant) => grant.clone(),
            None => {
                entry.heard(sent);
                let kept = self.session.lease(&claim);
                entry.hold(claim, held, kept, now, &self.clock)
            }
        };
        let wake = entry.wake();
        drop(table);
        if grant.until() <= now {
            // In this order, so that a shutdown sees it all the way.
            self.reap(&grant);
            let _ = self.take_out(grant.claim.id);
            return Err(self.late(&grant.claim));
        }
        self.wake_by(wake);
        Ok(grant)
    }
}

/// The same claim, of somebody new.
fn anew(mut claim: Claim) -> Claim {
    claim.id = ClaimId::random();
    claim
}

/// A claim that may be in the engine's line. Dropping it takes the claim out of the line, in the background.
struct Armed<'a> {
    keeper: &'a Keeper,
    claim: Option<&'a Claim>,
}

impl Armed<'_> {
    /// The claim is held by a grant now.
    fn disarm(mut self) {
        self.claim = None;
    }

    /// The claim may be in the line, if the error leaves that open.
    fn failed(self, error: Error) -> Error {
        if !error.may_have_happened() {
            self.forget();
        }
        error
    }

    /// The claim is surely not in the line.
    fn forget(mut self) {
        if let Some(claim) = self.claim.take() {
            let _ = self.keeper.take_out(claim.id);
        }
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            // In this order, so that a shutdown sees it all the way.
            self.keeper.reaper.give_back(Arc::new(claim.clone()), 0);
            let _ = self.keeper.take_out(claim.id);
        }
    }
}
