//! One client's life among the nodes. Nothing of it is there but its claims.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;

use super::super::keys::session_text;
use super::attempt::Attempt;
use super::calls::Said;
use super::entry::Entry;
use super::nodes::{Nodes, count, count_noes, votes_at};
use super::post::News;
use super::script::{Asker, Run, Vote};
use crate::claim::{ById, Claim, ClaimId, SessionId};
use crate::engine::{Event, Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;
use crate::sync::Shared;

/// A session: the claims that it may have on the nodes.
pub(super) struct RedlockSession {
    pub(super) nodes: Arc<Nodes>,
    id: SessionId,
    pub(super) asker: Asker,
    pub(super) inbox: Inbox,
    mine: Shared<ById<ClaimId, Arc<Entry>>>,
    this: Weak<Self>,
}

/// How many claims one call of the script keeps alive: others have to wait that long.
const AT_ONCE: usize = 100;

impl RedlockSession {
    pub(super) fn open(nodes: Arc<Nodes>, who: &Identity, inbox: Inbox) -> Arc<Self> {
        let id = SessionId::random();
        let asker = Asker {
            session: session_text(&nodes.post.address, id),
            who: format!("{}\n{}\n{}", who.pid, who.host, who.command),
        };
        let mine = Shared::default();
        let session = Arc::new_cyclic(|this| Self {
            nodes,
            id,
            asker,
            inbox,
            mine,
            this: this.clone(),
        });
        session.nodes.post.add(id, session.this.clone());
        session
    }

    /// A message of one node.
    pub(super) fn heard(&self, node: usize, id: ClaimId, news: News) {
        let Some(entry) = self.entry(id) else { return };
        match news {
            News::Wanted => self.inbox.deliver(Event::Wanted(id)),
            News::Free => {
                let hints = entry.hints.fetch_or(1 << node, Ordering::AcqRel) | 1 << node;
                if hints.count_ones() as usize >= self.nodes.majority() {
                    entry.hints.store(0, Ordering::Release);
                    entry.hinted.notify_one();
                }
            }
            News::Ended(why) if entry.fence().is_some() => {
                if entry.evictions.fetch_add(1, Ordering::AcqRel) == 0
                    && let Some(session) = self.this.upgrade()
                {
                    super::evicted::look(session, entry, why);
                }
            }
            News::Ended(_) => {}
        }
    }

    fn entry(&self, id: ClaimId) -> Option<Arc<Entry>> {
        self.mine.lock().get(&id).cloned()
    }

    pub(super) fn forget(&self, id: ClaimId) {
        if let Some(entry) = self.mine.lock().remove(&id) {
            entry.end();
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the engine's own event loop: a message must not wait"
    )]
    fn give_back_later(&self, entry: Arc<Entry>) {
        let nodes = self.nodes.clone();
        drop(tokio::spawn(async move {
            nodes
                .tell(vec![
                    Run::new("release").release(nodes.config.keys(), &entry.claim),
                ])
                .await;
        }));
    }

    /// Redlock is a mutex: permits that are counted by majorities can be given to more than there are (three holders
    /// of two permits on three nodes), and readers are not built.
    fn supported(&self, claim: &Claim) -> Result<()> {
        let refuse =
            |what: String| Err(Error::new(ErrorKind::Unsupported, Step::Claim, what).on("redlock"));
        if claim.mode.capacity() != 1 {
            return refuse(format!(
                "Redlock has mutexes only; {} was asked for",
                claim.mode
            ));
        }
        match claim.lease <= self.nodes.config.longest {
            true => Ok(()),
            false => refuse(format!(
                "a lease of {:?} is longer than longest={:?}: ask for a shorter lease",
                claim.lease, self.nodes.config.longest
            )),
        }
    }

    /// Tries for a claim that is not held yet. The caller has the right to talk about it.
    pub(super) async fn try_for(&self, entry: &Entry) -> Result<Standing> {
        if let Some(held) = entry.held(false) {
            return Ok(Standing::Held(held));
        }
        if entry.over.load(Ordering::Acquire) {
            return Ok(Standing::Gone);
        }
        Ok(match self.nodes.attempt(&entry.claim, &self.asker).await? {
            Attempt::Held(held) => {
                entry.holds(held);
                Standing::Held(held)
            }
            Attempt::Busy(again) if entry.claim.waits => Standing::Waiting {
                ahead: 1,
                look_again: again,
            },
            Attempt::Busy(_) => Standing::Busy,
        })
    }

    async fn beat(&self, entries: &[Arc<Entry>], patience: Duration) -> Vec<Option<Standing>> {
        let keys = self.nodes.config.keys();
        let runs: Vec<_> = entries
            .chunks(AT_ONCE)
            .map(|entries| {
                entries.iter().fold(Run::new("beat"), |run, entry| {
                    run.beat(
                        keys,
                        &entry.claim,
                        &self.asker,
                        entry.fence().unwrap_or(Fence::new(0)),
                    )
                })
            })
            .collect();
        let held = |vote: &Vote| matches!(vote, Vote::Held { .. });
        let known = |said: &Said<Vote>| {
            count(said, held) >= self.nodes.majority() || self.nodes.hopeless(said_no(said))
        };
        let all = 0..entries.len();
        let said = self
            .nodes
            .ask(runs, patience, |said| {
                all.clone().all(|at| known(&votes_at(said, at)))
            })
            .await;
        let standing = |(at, entry): (usize, &Arc<Entry>)| {
            let votes = votes_at(&said, at);
            let wanted = count(&votes, |vote| *vote == Vote::Held { wanted: true }) > 0;
            match entry.held(wanted) {
                Some(now) if count(&votes, held) >= self.nodes.majority() => {
                    Some(Standing::Held(now))
                }
                _ if self.nodes.hopeless(said_no(&votes)) => Some(Standing::Gone),
                _ => None,
            }
        };
        entries.iter().enumerate().map(standing).collect()
    }

    /// Renews claims that hold, and tells where they stand before the tries of others are over. False if that is not
    /// known of one.
    async fn beat_all(&self, held: &[Arc<Entry>], patience: Duration, heard: &Heard<'_>) -> bool {
        let mut all = true;
        for (entry, standing) in held.iter().zip(self.beat(held, patience).await) {
            let Some(standing) = standing else {
                all = false;
                continue;
            };
            if standing == Standing::Gone {
                self.forget(entry.claim.id);
                self.give_back_later(entry.clone());
            }
            heard(&entry.claim, standing);
        }
        all
    }

    /// Tries for claims that wait, side by side. False if a try had no answer.
    async fn try_all(&self, waiting: Vec<Arc<Entry>>, heard: &Heard<'_>) -> bool {
        let mut tries = JoinSet::new();
        for entry in waiting {
            let Some(session) = self.this.upgrade() else {
                continue;
            };
            let _ = tries.spawn(async move {
                let _talk = entry.talk.lock().await;
                (entry.clone(), session.try_for(&entry).await.ok())
            });
        }
        let mut all = true;
        while let Some(tried) = tries.join_next().await {
            let Ok((entry, Some(standing))) = tried else {
                all = false;
                continue;
            };
            heard(
                &entry.claim,
                match standing {
                    Standing::Waiting { ahead, .. } => entry.waits(ahead),
                    other => other,
                },
            );
        }
        all
    }
}

/// A claim that was asked for the first time. It is forgotten unless it came to hold or to wait, also when the call is
/// dropped.
struct Tried<'a>(Option<(&'a RedlockSession, ClaimId)>);

impl Tried<'_> {
    fn stays(mut self) {
        self.0 = None;
    }
}

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if let Some((session, id)) = self.0.take() {
            session.forget(id);
        }
    }
}

fn no_majority() -> Error {
    let error = Error::new(
        ErrorKind::Unavailable,
        Step::Heartbeat,
        "no majority of the nodes answers",
    );
    error.on("redlock").perhaps()
}

/// How many nodes said that the claim is not there; silence says nothing.
fn said_no(said: &Said<Vote>) -> usize {
    count(said, |vote| !matches!(vote, Vote::Held { .. }))
}

#[async_trait]
impl Session for RedlockSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        self.supported(claim)?;
        if !self.nodes.post.is_open(self.id) {
            return Err(Error::closed(Step::Claim).on("redlock"));
        }
        if self.entry(claim.id).is_some() {
            let told = Mutex::new(None);
            let heard = |_: &Claim, standing| {
                *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(standing)
            };
            self.heartbeat(&[Arc::new(claim.clone())], &heard).await?;
            let standing = told.into_inner().unwrap_or_else(PoisonError::into_inner);
            return standing.ok_or_else(no_majority);
        }
        let entry = Arc::new(Entry::new(claim));
        let _ = self.mine.lock().insert(claim.id, entry.clone());
        let tried = Tried(Some((self, claim.id)));
        let standing = self.try_for(&entry).await?;
        match standing {
            Standing::Waiting { look_again, .. } => {
                tried.stays();
                let waits = entry.waits(1);
                super::wait::start(self.this.clone(), entry, look_again);
                Ok(waits)
            }
            Standing::Held(_) => {
                tried.stays();
                Ok(standing)
            }
            _ => Ok(standing),
        }
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for claim in claims {
            match self.entry(claim.id) {
                Some(entry) if entry.fence().is_some() => held.push(entry),
                Some(entry) => waiting.push(entry),
                None => heard(claim, Standing::Gone),
            }
        }
        let longest = claims.iter().map(|claim| claim.lease).max();
        let patience = longest.unwrap_or_default() / 4;
        let (all_held, all_tried) = tokio::join!(
            self.beat_all(&held, patience, heard),
            self.try_all(waiting, heard)
        );
        match all_held && all_tried {
            true => Ok(()),
            false => Err(no_majority()),
        }
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn release(&self, claim: &Claim, _used: u32) -> Result<Release> {
        // Also if the release fails: the claim alone asks for it then, and not after its lease.
        let entry = self.mine.lock().remove(&claim.id);
        if let Some(entry) = &entry {
            entry.end();
            drop(entry.talk.lock().await);
        }
        let held = entry.is_some_and(|entry| entry.fence().is_some());
        let released = |vote: &Vote| *vote == Vote::Released;
        let need = if held { self.nodes.majority() } else { 1 };
        let run = Run::new("release").release(self.nodes.config.keys(), claim);
        let said = self
            .nodes
            .votes(run, self.nodes.config.patience(claim.lease), |said| {
                // A claim without a grant needs no votes: it is enough that a majority has heard it.
                let heard = count(said, |_| true) >= self.nodes.majority();
                match held {
                    true => {
                        let lost = heard && self.nodes.hopeless(count_noes(said, released));
                        count(said, released) >= need || lost
                    }
                    false => heard,
                }
            });
        let said = said.await;
        if count(&said, |_| true) < self.nodes.majority() {
            return Err(self.nodes.short(&said, Step::Release));
        }
        Ok(if count(&said, released) >= need {
            Release::Released
        } else {
            Release::Gone
        })
    }

    async fn close(&self) -> Result<()> {
        self.nodes.post.remove(self.id);
        let mine: Vec<_> = self.mine.lock().values().cloned().collect();
        if mine.is_empty() {
            return Ok(());
        }
        for entry in &mine {
            entry.end();
            drop(entry.talk.lock().await);
        }
        let keys = self.nodes.config.keys();
        let runs: Vec<_> = mine
            .chunks(AT_ONCE)
            .map(|entries| {
                entries.iter().fold(Run::new("release"), |run, entry| {
                    run.release(keys, &entry.claim)
                })
            })
            .collect();
        let answered = |said: &Said<_>| said.iter().flatten().filter(|said| said.is_ok()).count();
        let enough = |said: &Said<_>| answered(said) >= self.nodes.majority();
        let said = self
            .nodes
            .ask(runs, self.nodes.config.unhurried(), enough)
            .await;
        if !enough(&said) {
            return Err(self.nodes.short(&said, Step::Close));
        }
        mine.iter().for_each(|entry| self.forget(entry.claim.id));
        Ok(())
    }
}

impl fmt::Debug for RedlockSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedlockSession({:?})", self.nodes)
    }
}
