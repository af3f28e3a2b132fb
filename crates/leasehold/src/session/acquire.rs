//! The way of a claim from asking to holding.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::grant::Grant;
use super::manager::{Manager, patience};
use super::table::{Confirmed, Entry, News, Phase, Told};
use super::timeout::within;
use crate::claim::{Claim, ClaimId};
use crate::clock::{Micros, micros};
use crate::engine::{Ended, Held, Standing};
use crate::error::{Error, ErrorKind, Result, Step};

/// The most claims of one client: held, waiting, or still to be given back. Each heartbeat speaks of all that are held or
/// wait.
const CLAIMS_MAX: usize = 100_000;

impl Manager {
    /// Asks the engine, and waits if the claim waits; none if a try found no room. Dropped at any await, it leaves at
    /// most one release behind. `confirmed` follows what the engine says of the wait.
    pub(crate) async fn acquire(
        &self,
        mut claim: Claim,
        keep_alive: bool,
        confirmed: &Confirmed,
    ) -> Result<Option<Arc<Grant>>> {
        // Whether the engine may still have an earlier claim of this request: then an error leaves that open too.
        let mut left = false;
        let error = loop {
            // Armed before the first byte leaves.
            let armed = match self.arm(&claim, keep_alive, confirmed) {
                Ok(armed) => armed,
                Err(closed) => break closed,
            };
            let ended = match self.attempt(&claim).await {
                Ok(Told::Holds(grant)) if grant.until() <= self.clock.now() => {
                    break armed.failed(self.late(&claim));
                }
                // An end that came between the grant and this wake counts.
                Ok(Told::Holds(grant)) => match grant.why_lost() {
                    Some(why) => why.clone(),
                    None => {
                        armed.disarm();
                        return Ok(Some(grant));
                    }
                },
                Ok(Told::Busy) => {
                    armed.forget();
                    return Ok(None);
                }
                Ok(Told::Late) => {
                    left = true;
                    Ended::Expired
                }
                Ok(Told::Ended(why)) => why,
                Err(error) => break armed.failed(error.of(&claim.name)),
            };
            if let Ended::Down(why) = ended {
                break self.down(&claim, &why);
            }
            // The place in line is gone (a pause, an eviction): join again, under a new id.
            drop(armed);
            claim.id = ClaimId::random();
        };
        Err(if left { error.perhaps() } else { error })
    }

    /// One claim, from the first byte to the end of its wait.
    async fn attempt(&self, claim: &Claim) -> Result<Told> {
        let sent = self.clock.now();
        let answer = within(patience(claim), self.session.claim(claim)).await;
        let answered = match answer.ok_or_else(|| self.late(claim))?? {
            Standing::Busy => return Ok(Told::Busy),
            Standing::Gone => return Ok(Told::Ended(Ended::Forgotten)),
            Standing::Held(held) => self.answered(claim, sent, Ok(held)),
            Standing::Waiting { look_again, .. } => self.answered(claim, sent, Err(look_again)),
        };
        let down = || Told::Ended(Ended::Down("the client was dropped".to_owned()));
        match answered {
            Ok(told) => Ok(told),
            Err(wait) => Ok(wait.await.unwrap_or_else(|_| down())),
        }
    }

    /// The answer to a claim: it holds, or waits and is to be looked at again. Events may have overtaken it.
    fn answered(
        &self,
        claim: &Claim,
        sent: Micros,
        standing: Result<Held, Duration>,
    ) -> Result<Told, oneshot::Receiver<Told>> {
        let mut table = self.table.lock();
        let Some(entry) = table.get_mut(&claim.id) else {
            return Ok(Told::Ended(Ended::Forgotten));
        };
        if self.is_closing() {
            let why = "the client was shut down".to_owned();
            return Ok(Told::Ended(Ended::Down(why)));
        }
        let early = match &mut entry.phase {
            Phase::Asking { early } => early.take(),
            _ => None,
        };
        let standing = match early {
            Some(News::Ended(why)) => return Ok(Told::Ended(why)),
            Some(News::Granted(held)) => Ok(held),
            None => standing,
        };
        entry.heard(sent, false);
        let now = self.clock.now();
        let (answer, wake) = match standing {
            Ok(held) => {
                let kept = self.session.lease(claim);
                let grant = entry.hold(claim.clone(), held, kept, now, &self.clock);
                (Ok(Told::Holds(grant)), entry.wake())
            }
            Err(look_again) => {
                let (tell, told) = oneshot::channel();
                entry.confirmed.set(true);
                entry.phase = Phase::Waiting {
                    claim: Arc::new(claim.clone()),
                    tell: Some(tell),
                };
                entry.due = entry.due.min(now.saturating_add(micros(look_again)));
                (Err(told), entry.due)
            }
        };
        drop(table);
        self.wake_by(wake);
        answer
    }

    pub(super) fn late(&self, claim: &Claim) -> Error {
        Error::new(
            ErrorKind::TimedOut,
            Step::Claim,
            "the engine gave no answer within the lease",
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

    fn arm<'a>(
        &'a self,
        claim: &Claim,
        keep_alive: bool,
        confirmed: &Confirmed,
    ) -> Result<Armed<'a>> {
        let entry = Entry::new(claim.lease, keep_alive, confirmed.clone());
        let mut table = self.table.lock();
        // Looked at under the lock: after `close` has gone through the table nothing new gets in.
        if self.is_closing() {
            return Err(Error::closed(Step::Claim).of(&claim.name));
        }
        if table.len() + self.reaper.progress.open() >= CLAIMS_MAX {
            let what = format!(
                "this client has {CLAIMS_MAX} claims, the most there may be: use another client for more"
            );
            let error = Error::new(ErrorKind::Unavailable, Step::Claim, what);
            return Err(error.on(self.engine).of(&claim.name));
        }
        let _ = table.insert(claim.id, entry);
        Ok(Armed {
            manager: self,
            claim: Some(Arc::new(claim.clone())),
        })
    }
}

/// A claim that may be in the engine's line. Dropping it takes the claim out of the line, in the background.
struct Armed<'a> {
    manager: &'a Manager,
    claim: Option<Arc<Claim>>,
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
            let _ = self.manager.take_out(claim.id);
        }
    }
}

impl Drop for Armed<'_> {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            let id = claim.id;
            // In this order, so that a shutdown sees it all the way.
            self.manager.reaper.release(claim, 0);
            let _ = self.manager.take_out(id);
        }
    }
}
