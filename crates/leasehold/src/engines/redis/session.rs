//! One client's life in Redis. Nothing of it is on the server but its claims.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;

use super::answer::{self, Since};
use super::error::Trouble;
use super::keys::{Bucket, session_text};
use super::script::Run;
use super::servers::{Answers, Servers};
use crate::claim::{ById, Claim, ClaimId, SessionId};
use crate::engine::{Event, Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
use crate::fence::FENCE_BLOCK;
use crate::sync::Shared;

/// A session: what it may have in which lines.
pub(super) struct RedisSession {
    servers: Arc<Servers>,
    id: SessionId,
    /// The session as claims name it.
    text: String,
    who: String,
    /// What may be in a line, to be released when the session closes.
    mine: Shared<ById<ClaimId, Mine>>,
}

/// A claim of this session.
struct Mine {
    claim: Arc<Claim>,
    /// Since when it holds, if it was alone then: its release finds it alone, most likely.
    alone: Option<Since>,
}

/// How long closing may take.
const CLOSING: Duration = Duration::from_secs(60);

/// How many calls of the script grant to all waiters of a line.
const MOST_CALLS: u32 = 100;

/// How many claims one call of the script keeps alive: others have to wait that long.
const AT_ONCE: usize = 100;

impl RedisSession {
    pub(super) fn open(servers: Arc<Servers>, who: &Identity, inbox: Inbox) -> Arc<Self> {
        let id = SessionId::random();
        let session = Arc::new(Self {
            id,
            text: session_text(&servers.address, id),
            who: who_text(who),
            mine: Shared::default(),
            servers,
        });
        session
            .servers
            .mailbox
            .add(id, listening(Arc::downgrade(&session), inbox));
        session
    }

    /// The runs for these claims: one per server and hundred, and which claims each is about.
    fn runs(&self, claims: &[Arc<Claim>], run: impl Fn(&[&Claim]) -> Run) -> Vec<Part> {
        let mut groups = BTreeMap::<_, Vec<usize>>::new();
        for (at, claim) in claims.iter().enumerate() {
            let bucket = Bucket::of(&claim.name);
            groups
                .entry(self.servers.group(bucket))
                .or_default()
                .push(at);
        }
        let parts = groups.into_iter().flat_map(|(bucket, places)| {
            let chunks: Vec<_> = places.chunks(AT_ONCE).map(<[usize]>::to_vec).collect();
            chunks.into_iter().map(move |places| (bucket, places))
        });
        parts
            .map(|(bucket, places)| {
                let these: Vec<_> = places.iter().map(|at| &*claims[*at]).collect();
                Part {
                    bucket,
                    run: run(&these),
                    places,
                }
            })
            .collect()
    }

    /// Runs the script for these claims on their servers, all at once, and gives each no longer than this. Claims in a
    /// slot that is on its way to another server are asked about one by one: each may be here or there.
    async fn run_all(
        &self,
        claims: &[Arc<Claim>],
        run: impl Fn(&[&Claim]) -> Run,
        patience: Duration,
    ) -> Vec<(Vec<usize>, Outcome)> {
        let parts = self.runs(claims, &run);
        let mut done = self.run_parts(parts, patience).await;
        let moving = |(_, outcome): &mut (_, Outcome)| {
            let trouble = outcome.as_ref().err();
            trouble.is_some_and(Trouble::is_migration)
        };
        let mut calls = JoinSet::new();
        for at in done.extract_if(.., moving).flat_map(|(places, _)| places) {
            let (servers, bucket) = (self.servers.clone(), Bucket::of(&claims[at].name));
            let run = run(&[&claims[at]]);
            let _ = calls.spawn(async move {
                let ran = tokio::time::timeout(patience, servers.run(bucket, &run)).await;
                let outcome = ran.unwrap_or(Err(Trouble::Silent));
                (vec![at], outcome.map(|answer| vec![answer]))
            });
        }
        done.extend(calls.join_all().await);
        done
    }

    async fn run_parts(&self, parts: Vec<Part>, patience: Duration) -> Vec<(Vec<usize>, Outcome)> {
        let mut by_server = BTreeMap::<usize, (Arc<_>, Vec<Part>)>::new();
        let mut done = Vec::new();
        for part in parts {
            match self.servers.link(part.bucket).await {
                Ok(link) => {
                    let address = Arc::as_ptr(&link) as usize;
                    by_server
                        .entry(address)
                        .or_insert_with(|| (link, Vec::new()))
                        .1
                        .push(part);
                }
                Err(trouble) => done.push((part.places, Err(trouble))),
            }
        }
        let mut calls = JoinSet::new();
        for (link, parts) in by_server.into_values() {
            let servers = self.servers.clone();
            let _ = calls.spawn(async move {
                let runs: Vec<_> = parts.iter().map(|part| part.run.clone()).collect();
                let ran = tokio::time::timeout(patience, servers.run_on(&link, &runs)).await;
                let outcomes = match ran.unwrap_or(Err(Trouble::Silent)) {
                    Ok(outcomes) => outcomes,
                    Err(trouble) => vec![Err(trouble); parts.len()],
                };
                for (part, outcome) in parts.iter().zip(&outcomes) {
                    if let (Some(bucket), Err(trouble)) = (part.bucket, outcome) {
                        let _ = servers.elsewhere(&link, bucket, trouble).await;
                        break;
                    }
                }
                parts
                    .into_iter()
                    .map(|part| part.places)
                    .zip(outcomes)
                    .collect::<Vec<_>>()
            });
        }
        while let Some(answered) = calls.join_next().await {
            done.extend(answered.unwrap_or_default());
        }
        done
    }

    /// Grants that are left after a release: one call of the script makes some hundred. A call that fails is made up for
    /// by the next heartbeat of any waiter.
    async fn go_on(&self, bucket: Bucket, claim: &Claim) {
        // No claim can be there as often as this.
        for _ in 0..MOST_CALLS {
            let run = Run::release(&self.servers.config.keys, &[claim], FENCE_BLOCK);
            let answered = self.servers.run(bucket, &run).await;
            if !matches!(answered.and_then(answer::released), Ok((_, true))) {
                return;
            }
        }
    }

    fn claims(&self) -> Vec<Arc<Claim>> {
        let mine = self.mine.lock();
        mine.values().map(|mine| mine.claim.clone()).collect()
    }

    fn forget(&self, id: ClaimId) {
        let _ = self.mine.lock().remove(&id);
    }
}

/// Some claims on one server.
struct Part {
    bucket: Option<Bucket>,
    run: Run,
    places: Vec<usize>,
}

type Outcome = std::result::Result<Answers, Trouble>;

#[async_trait]
impl Session for RedisSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        if !self.servers.mailbox.is_open(self.id) {
            return Err(Error::closed(Step::Claim).on("redis"));
        }
        let mine = Mine {
            claim: Arc::new(claim.clone()),
            alone: None,
        };
        let _ = self.mine.lock().insert(claim.id, mine);
        let run = Run::claim(&self.servers.config.keys, claim, &self.text, &self.who);
        let answered = self.servers.run(Bucket::of(&claim.name), &run).await;
        let (answer, alone) = answered
            .and_then(answer::claimed)
            .map_err(|trouble| trouble.at(Step::Claim))?;
        match answer {
            Ok(standing) => {
                if matches!(standing, Standing::Busy | Standing::Gone) {
                    self.forget(claim.id);
                } else if let Some(mine) = self.mine.lock().get_mut(&claim.id) {
                    mine.alone = alone;
                }
                Ok(standing)
            }
            Err(refusal) => {
                self.forget(claim.id);
                Err(Error::from(refusal).on("redis"))
            }
        }
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        let keys = &self.servers.config.keys;
        let shortest = claims
            .iter()
            .map(|claim| claim.lease)
            .min()
            .unwrap_or_default();
        let mut failed = None;
        for (places, outcome) in self
            .run_all(claims, |these| Run::beat(keys, these), shortest / 4)
            .await
        {
            match outcome {
                Ok(answers) => {
                    for (at, answer) in places.into_iter().zip(answers) {
                        let standing =
                            answer::standing(answer).map_err(|t| t.at(Step::Heartbeat))?;
                        let standing = standing.unwrap_or(Standing::Gone);
                        if standing == Standing::Gone {
                            self.forget(claims[at].id);
                        }
                        heard(&claims[at], standing);
                    }
                }
                Err(trouble) => failed = Some(trouble),
            }
        }
        failed.map_or(Ok(()), |trouble| Err(trouble.at(Step::Heartbeat)))
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let keys = &self.servers.config.keys;
        let alone = self.mine.lock().get(&claim.id).and_then(|mine| mine.alone);
        let run = match alone {
            Some(since) => Run::free(keys, claim, since, used),
            None => Run::release(keys, &[claim], used),
        };
        let bucket = Bucket::of(&claim.name);
        let answered = self.servers.run(bucket, &run).await;
        let (release, more) = answered
            .and_then(answer::released)
            .map_err(|trouble| trouble.at(Step::Release))?;
        self.forget(claim.id);
        if more {
            self.go_on(bucket, claim).await;
        }
        Ok(release)
    }

    async fn close(&self) -> Result<()> {
        self.servers.mailbox.remove(self.id);
        let mine = self.claims();
        let keys = &self.servers.config.keys;
        // How many fences were spent is not known here: all of them.
        let release = |these: &[&Claim]| Run::release(keys, these, FENCE_BLOCK);
        // A silent server is noticed by its link; many claims just take their time.
        for (places, outcome) in self.run_all(&mine, release, CLOSING).await {
            let _ = outcome.map_err(|trouble| trouble.at(Step::Close))?;
            places.iter().for_each(|at| self.forget(mine[*at].id));
        }
        Ok(())
    }
}

/// The session's inbox, as messages reach it. A grant that replicas must have is told once they do.
fn listening(session: Weak<RedisSession>, inbox: Inbox) -> Inbox {
    Inbox::new(move |event| {
        let Some(session) = session.upgrade() else {
            return;
        };
        match event {
            Event::Granted(id, _) if session.servers.config.replicas > 0 => {
                confirm(session, inbox.clone(), id)
            }
            Event::Ended(id, _) => {
                session.forget(id);
                inbox.deliver(event);
            }
            event => inbox.deliver(event),
        }
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the engine's own event loop: it must not wait for replicas"
)]
fn confirm(session: Arc<RedisSession>, inbox: Inbox, id: ClaimId) {
    let claim = session.mine.lock().get(&id).map(|mine| mine.claim.clone());
    let Some(claim) = claim else {
        return;
    };
    drop(tokio::spawn(async move {
        // Otherwise the next heartbeat confirms it, or tells that it cannot be.
        let heard = |_: &Claim, standing: Standing| {
            if let Standing::Held(held) = standing {
                inbox.deliver(Event::Granted(id, held));
            }
        };
        if let Err(error) = session.heartbeat(&[claim], &heard).await {
            tracing::debug!(%error, "a grant is not confirmed yet");
        }
    }));
}

/// Who asks, as it is stored: host and command may hold spaces, a process id does not.
pub(super) fn who_text(who: &Identity) -> String {
    format!("{}\n{}\n{}", who.pid, who.host, who.command)
}

pub(super) fn who(text: &str) -> Option<Identity> {
    let mut parts = text.splitn(3, '\n');
    let pid = parts.next()?.parse().ok()?;
    Some(Identity::new(parts.next()?, pid, parts.next()?))
}

impl fmt::Debug for RedisSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisSession({:?})", self.servers)
    }
}
