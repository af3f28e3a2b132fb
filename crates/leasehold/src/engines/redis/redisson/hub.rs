//! Shared by the sessions of one process: the connection, the subscriptions, and the waiters.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::super::client::{Channel, Common, Reply, Server, Unasked};
use super::super::config::Config;
use super::super::error::Trouble;
use super::channels::Channels;
use super::kind::Kinds;
use super::script::{self, Run};
use super::session::RedissonSession;
use crate::claim::{ById, ClaimId, Mode, SessionId};
use crate::engine::Event;
use crate::sync::Shared;

pub(super) struct Hub {
    pub(super) config: Config,
    pub(super) kinds: Kinds,
    link: OnceLock<Arc<Server>>,
    sessions: Shared<ById<SessionId, Weak<RedissonSession>>>,
    pub(super) channels: Channels,
    /// One subscribes or unsubscribes at a time, so that the last word on a channel is the right one.
    subscribing: tokio::sync::Mutex<()>,
    this: Weak<Self>,
}

const PAUSE: Duration = Duration::from_millis(25);

impl Hub {
    pub(super) fn new(config: Config, kinds: Kinds) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            config,
            kinds,
            link: OnceLock::new(),
            sessions: Shared::default(),
            channels: Channels::default(),
            subscribing: tokio::sync::Mutex::default(),
            this: this.clone(),
        })
    }

    pub(super) fn link(&self) -> &Arc<Server> {
        self.link.get_or_init(|| {
            let hub = self.this.clone();
            let common = Common {
                config: self.config.clone(),
                script: script::TEXT,
                hear: Arc::new(move |heard| {
                    if let Some(hub) = hub.upgrade() {
                        hub.heard(heard);
                    }
                }),
            };
            common.server(None, [])
        })
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
        let replies = self.link().run(runs.iter().map(Run::words), None).await?;
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
            // The next answer may belong to another call, or another server must give it.
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

    /// Waits no longer; whether it did. The last one to leave ends the subscription.
    #[expect(
        clippy::disallowed_methods,
        reason = "the engine's own event loop: leaving must not wait"
    )]
    pub(super) fn leave(&self, channel: &str, id: ClaimId) -> bool {
        let (left, last) = self.channels.leave(channel, id);
        if last && let (Some(hub), channel) = (self.this.upgrade(), channel.to_owned()) {
            drop(tokio::spawn(async move { hub.unsubscribe(&channel).await }));
        }
        left
    }

    /// Messages of this channel are heard once this has returned.
    pub(super) async fn subscribe(&self, channel: &str) -> Result<(), Trouble> {
        let _one_at_a_time = self.subscribing.lock().await;
        if !self.channels.is_subscribed(channel) {
            let plain = Channel::Plain(channel.to_owned());
            self.link().subscribe(plain).await?;
            self.channels.subscribed(channel);
        }
        Ok(())
    }

    async fn unsubscribe(&self, channel: &str) {
        let _one_at_a_time = self.subscribing.lock().await;
        if self.channels.forget(channel) {
            self.link().unsubscribe(channel).await;
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    fn heard(&self, heard: Unasked<'_>) {
        let channel = match heard {
            Unasked::Missed => {
                let sessions = self.sessions();
                return sessions
                    .iter()
                    .for_each(|session| session.tell(Event::Unsure));
            }
            Unasked::Message { channel, .. } => std::str::from_utf8(channel).unwrap_or_default(),
        };
        if self.channels.wake(channel)
            && let (Some(hub), channel) = (self.this.upgrade(), channel.to_owned())
        {
            drop(tokio::spawn(async move { hub.try_for_all(&channel).await }));
        }
    }

    /// Tries for the waiters, as long as messages come.
    async fn try_for_all(&self, channel: &str) {
        while let Some(waiters) = self.channels.next_round(channel) {
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
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({})", self.config.location())
    }
}
