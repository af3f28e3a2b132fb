//! What the sessions of one process share: the connection, the subscriptions, and who of them waits for what.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::super::config::{Config, Shape};
use super::super::error::Trouble;
use super::super::fit;
use super::super::link::{Dial, Link, Owner};
use super::super::sentinel::Sentinels;
use super::super::servers::Fixed;
use super::super::wire::{Call, Reply, Target};
use super::kind::Kinds;
use super::script::{self, Run};
use super::session::RedissonSession;
use crate::claim::{ById, Claim, ClaimId, Mode, SessionId};
use crate::clock::micros;
use crate::engine::{Clock, Event, Identity, Micros};
use crate::sync::Shared;

pub(super) struct Hub {
    pub(super) config: Config,
    pub(super) kinds: Kinds,
    digest: OnceLock<String>,
    link: OnceLock<Arc<Link>>,
    sessions: Shared<ById<SessionId, Weak<RedissonSession>>>,
    channels: Shared<HashMap<String, Channel>>,
    /// One subscribes or unsubscribes at a time, so that the last word on a channel is the right one.
    subscribing: tokio::sync::Mutex<()>,
    this: Weak<Self>,
}

/// Who waits for a message on one channel, in order of arrival.
#[derive(Default)]
struct Channel {
    waiters: VecDeque<Waiter>,
    subscribed: bool,
    /// Somebody is trying for the waiters.
    trying: bool,
    /// Another message came meanwhile.
    again: bool,
}

#[derive(Clone)]
pub(super) struct Waiter {
    pub(super) claim: Arc<Claim>,
    pub(super) session: Weak<RedissonSession>,
    pub(super) who: Arc<Identity>,
    pub(super) since: Micros,
    /// When it ends unless its session says another word.
    pub(super) ends: Micros,
}

impl Channel {
    /// Those whose session said a word within the lease.
    fn alive(&mut self) -> &mut VecDeque<Waiter> {
        let now = Clock::boot().now();
        self.waiters.retain(|waiter| waiter.ends > now);
        &mut self.waiters
    }
}

const PAUSE: Duration = Duration::from_millis(25);

impl Hub {
    pub(super) fn new(config: Config, kinds: Kinds) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            config,
            kinds,
            digest: OnceLock::new(),
            link: OnceLock::new(),
            sessions: Shared::default(),
            channels: Shared::default(),
            subscribing: tokio::sync::Mutex::default(),
            this: this.clone(),
        })
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        self.link.get_or_init(|| {
            let owner: Weak<dyn Owner> = self.this.clone();
            Link::start(self.dial(), owner, self.config.patience)
        })
    }

    fn dial(&self) -> Arc<dyn Dial> {
        match &self.config.shape {
            Shape::Sentinel { master, login } => {
                Arc::new(Sentinels::new(&self.config, master.clone(), login.clone()))
            }
            _ => Arc::new(Fixed(self.config.target(self.config.hosts[0].clone()))),
        }
    }

    pub(super) fn add(&self, id: SessionId, session: &Arc<RedissonSession>) {
        let _ = self.sessions.lock().insert(id, Arc::downgrade(session));
    }

    /// The session is over: it waits for nothing and is told nothing.
    pub(super) fn remove(&self, id: SessionId) {
        let _ = self.sessions.lock().remove(&id);
    }

    pub(super) fn is_open(&self, id: SessionId) -> bool {
        self.sessions.lock().contains_key(&id)
    }

    pub(super) fn sessions(&self) -> Vec<Arc<RedissonSession>> {
        self.sessions
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect()
    }

    /// Runs the script several times in one round trip, and loads it if the server has forgotten it.
    pub(super) async fn run_all(
        &self,
        runs: &[Run],
    ) -> Result<Vec<Result<Vec<Reply>, Trouble>>, Trouble> {
        let digest = self.digest.get().map_or("", String::as_str);
        let mut calls: Vec<_> = runs.iter().map(|run| run.call(digest)).collect();
        let mut replies = self.link().send(&calls).await?;
        let forgotten = |reply: &Reply| matches!(reply, Reply::Refused(trouble) if trouble.code() == "NOSCRIPT");
        if replies.iter().any(forgotten) {
            calls.insert(0, script::load());
            replies = self.link().send(&calls).await?;
            drop(replies.remove(0));
        }
        let answers: Vec<_> = runs
            .iter()
            .zip(replies)
            .map(|(run, reply)| run.answer(reply))
            .collect();
        let odd = |answer: &Result<_, Trouble>| {
            answer.as_ref().is_err_and(|trouble| {
                matches!(trouble, Trouble::Strange(_)) || trouble.code() == "READONLY"
            })
        };
        if answers.iter().any(odd) {
            // Whatever it says next may belong to somebody else, or another server must say it.
            self.link().renew();
        }
        Ok(answers)
    }

    /// Runs the script once, also if the server cannot at first.
    pub(super) async fn run(&self, run: &Run) -> Result<Vec<Reply>, Trouble> {
        let mut left = self.config.patience;
        loop {
            let answers = self.run_all(std::slice::from_ref(run)).await?;
            match answers
                .into_iter()
                .next()
                .unwrap_or_else(|| Err(Trouble::strange("no answer")))
            {
                Err(trouble) if trouble.is_passing() && !left.is_zero() => {}
                answer => return answer,
            }
            tokio::time::sleep(PAUSE).await;
            left = left.saturating_sub(PAUSE);
        }
    }

    /// Waits on a channel from now on, behind those of this process who came before.
    pub(super) fn join(&self, channel: &str, waiter: Waiter) {
        let mut channels = self.channels.lock();
        let waiters = channels.entry(channel.to_owned()).or_default().alive();
        if waiters
            .iter()
            .all(|known| known.claim.id != waiter.claim.id)
        {
            waiters.push_back(waiter);
        }
    }

    /// A waiter's session said a word; whether the waiter is still there.
    pub(super) fn heard(&self, channel: &str, id: ClaimId) -> bool {
        let mut channels = self.channels.lock();
        let waiters = channels.get_mut(channel).map(Channel::alive);
        let waiter =
            waiters.and_then(|waiters| waiters.iter_mut().find(|waiter| waiter.claim.id == id));
        let is_there = waiter.is_some();
        if let Some(waiter) = waiter {
            waiter.ends = Clock::boot()
                .now()
                .saturating_add(micros(waiter.claim.lease));
        }
        is_there
    }

    /// Waits no longer. The last one to leave ends the subscription.
    #[expect(
        clippy::disallowed_methods,
        reason = "the engine's own event loop: leaving must not wait"
    )]
    pub(super) fn leave(&self, channel: &str, id: ClaimId) -> bool {
        let mut channels = self.channels.lock();
        let Some(known) = channels.get_mut(channel) else {
            return false;
        };
        let before = known.waiters.len();
        known.waiters.retain(|waiter| waiter.claim.id != id);
        let left = known.waiters.len() < before;
        if known.waiters.is_empty()
            && let (Some(hub), channel) = (self.this.upgrade(), channel.to_owned())
        {
            drop(tokio::spawn(async move { hub.unsubscribe(&channel).await }));
        }
        left
    }

    pub(super) fn is_waited_for(&self, channel: &str) -> bool {
        let mut channels = self.channels.lock();
        channels
            .get_mut(channel)
            .is_some_and(|known| !known.alive().is_empty())
    }

    /// How many of this process wait before this claim.
    pub(super) fn ahead(&self, channel: &str, id: ClaimId) -> usize {
        let mut channels = self.channels.lock();
        let waiters = channels.get_mut(channel).map(Channel::alive);
        waiters
            .and_then(|waiters| waiters.iter().position(|waiter| waiter.claim.id == id))
            .unwrap_or(0)
    }

    /// Everybody in this process who waits, in order of arrival for each name.
    pub(super) fn waiters(&self) -> Vec<Waiter> {
        let mut channels = self.channels.lock();
        channels
            .values_mut()
            .flat_map(|known| known.alive().iter().cloned())
            .collect()
    }

    /// Messages of this channel are heard once this has returned.
    pub(super) async fn subscribe(&self, channel: &str) -> Result<(), Trouble> {
        let _one_at_a_time = self.subscribing.lock().await;
        if self
            .channels
            .lock()
            .get(channel)
            .is_some_and(|known| known.subscribed)
        {
            return Ok(());
        }
        let reply = self
            .link()
            .send(&[Call::new("SUBSCRIBE").arg(channel)])
            .await?
            .pop();
        let _ = reply.unwrap_or(Reply::Nil).ok()?;
        if let Some(known) = self.channels.lock().get_mut(channel) {
            known.subscribed = true;
        }
        Ok(())
    }

    async fn unsubscribe(&self, channel: &str) {
        let _one_at_a_time = self.subscribing.lock().await;
        {
            let mut channels = self.channels.lock();
            if channels
                .get(channel)
                .is_none_or(|known| !known.waiters.is_empty() || known.trying)
            {
                return;
            }
            let _ = channels.remove(channel);
        }
        // If it cannot be sent, the next connection does without.
        let _ = self
            .link()
            .send(&[Call::new("UNSUBSCRIBE").arg(channel)])
            .await;
    }

    /// Something may be free: tries for those who wait.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    fn wake(&self, channel: &str) {
        let mut channels = self.channels.lock();
        let Some(known) = channels.get_mut(channel) else {
            return;
        };
        known.again = true;
        if known.trying {
            return;
        }
        known.trying = true;
        if let (Some(hub), channel) = (self.this.upgrade(), channel.to_owned()) {
            drop(tokio::spawn(async move { hub.try_for_all(&channel).await }));
        }
    }

    async fn try_for_all(&self, channel: &str) {
        while let Some(waiters) = self.begin_round(channel) {
            for waiter in waiters {
                let Some(session) = waiter.session.upgrade() else {
                    let _ = self.leave(channel, waiter.claim.id);
                    continue;
                };
                session.try_waiting(&waiter.claim).await;
                // One message is one release: a mutex is not free twice.
                if waiter.claim.mode == Mode::Mutex {
                    break;
                }
            }
        }
        self.unsubscribe(channel).await;
    }

    /// The waiters, if a message came since the last round.
    fn begin_round(&self, channel: &str) -> Option<Vec<Waiter>> {
        let mut channels = self.channels.lock();
        let known = channels.get_mut(channel)?;
        if !std::mem::take(&mut known.again) {
            known.trying = false;
            return None;
        }
        Some(known.alive().iter().cloned().collect())
    }
}

impl Owner for Hub {
    fn greeting(&self, _: &Target) -> Vec<Call> {
        let mut calls = vec![
            script::load(),
            Call::new("INFO server"),
            Call::new("INFO memory"),
            Call::new("ROLE"),
        ];
        let channels = self.channels.lock();
        calls.extend(
            channels
                .keys()
                .map(|channel| Call::new("SUBSCRIBE").arg(channel)),
        );
        calls
    }

    fn greeted(&self, replies: Vec<Reply>) -> Result<(), Trouble> {
        let mut replies = replies.into_iter();
        let mut next = || {
            replies
                .next()
                .ok_or_else(|| Trouble::strange("a short greeting"))
        };
        let digest = next()?.text()?;
        let _ = self.digest.set(digest);
        let infos = [next()?, next()?];
        fit::check(&infos, &next()?, &self.config)?;
        replies.try_for_each(|reply| reply.ok().map(drop))
    }

    fn heard(&self, channel: &[u8], _: &[u8]) {
        if let Ok(channel) = std::str::from_utf8(channel) {
            self.wake(channel);
        }
    }

    fn missed(&self) {
        for session in self.sessions() {
            session.tell(Event::Unsure);
        }
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({})", self.config.location())
    }
}
