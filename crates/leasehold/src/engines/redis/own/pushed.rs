//! Trust in messages: every client with a right to the channels can write one.

use std::sync::{Arc, Weak};

use super::super::words::MOST;
use super::answer::Since;
use super::session::RedisSession;
use crate::claim::{Claim, ClaimId};
use crate::clock::micros;
use crate::engine::{Clock, Ended, Event, Held, Inbox, Micros, Standing};
use crate::fence::Fence;

/// A claim of this session.
pub(super) struct Mine {
    pub(super) claim: Arc<Claim>,
    pub(super) phase: Phase,
    /// Since when it holds, if it was alone then: its release finds it alone, most likely.
    pub(super) alone: Option<Since>,
    /// When it was asked for, or last heard of.
    pub(super) heard: Micros,
    asking: Asking,
    /// The end that a message told of.
    ended: Option<Ended>,
}

/// How far a claim is, by what the server answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The server has not answered yet.
    Asked,
    /// It waits: the server's time, and ours, when the server said so.
    Waits {
        server: u64,
        ours: Micros,
    },
    Holds,
}

/// Whether the server is being asked about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    No,
    Yes,
    /// Another message came meanwhile.
    Again,
}

/// How far ahead of the server's clock a grant may be by its message alone, in microseconds. A counter that is further
/// ahead, as after thousands of grants of which no fence was spent, is believed when the server answers.
const AHEAD: u64 = 1_000_000;

impl Mine {
    pub(super) fn new(claim: Arc<Claim>) -> Self {
        Self {
            claim,
            phase: Phase::Asked,
            alone: None,
            heard: Clock::boot().now(),
            asking: Asking::No,
            ended: None,
        }
    }

    /// Whether the server has surely ended it by now, heard of or not.
    pub(super) fn is_over(&self, now: Micros) -> bool {
        self.heard.saturating_add(micros(self.claim.lease) * 2) <= now
    }

    /// The server said at this time of its clock that the claim waits.
    pub(super) fn waits(&mut self, server: u64) {
        // A grant that was pushed meanwhile counts more than an older answer.
        if self.phase != Phase::Holds {
            let ours = Clock::boot().now();
            self.phase = Phase::Waits { server, ours };
        }
    }

    /// Whether a grant with this fence can be true now.
    fn believes(&self, fence: Fence) -> bool {
        let Phase::Waits { server, ours } = self.phase else {
            return false;
        };
        let passed = Clock::boot().now().saturating_sub(ours);
        let most = server.saturating_add(passed).saturating_add(AHEAD);
        Fence::bounded(fence.get(), most.min(MOST)).is_some()
    }
}

/// The session's inbox, as messages reach it.
pub(super) fn listening(session: Weak<RedisSession>, inbox: Inbox) -> Inbox {
    Inbox::new(move |event| {
        if let Some(session) = session.upgrade() {
            heard(&session, &inbox, event);
        }
    })
}

fn heard(session: &Arc<RedisSession>, inbox: &Inbox, event: Event) {
    match event {
        Event::Granted(id, held) => granted(session, inbox, id, held),
        // The end of a claim is believed when the server says that it is gone.
        Event::Ended(id, why) => ask(session, inbox, id, Some(why)),
        Event::Wanted(id) if !session.mine.lock().contains_key(&id) => {}
        event => inbox.deliver(event),
    }
}

/// A grant is believed of a claim that waits, with a fence that can be true; otherwise the server is asked. So it is with
/// `confirm=1`, for a claim that is to be confirmed, and when replicas must have the grant.
fn granted(session: &Arc<RedisSession>, inbox: &Inbox, id: ClaimId, held: Held) {
    let config = &session.servers.config;
    let confirmed = config.confirm || config.replicas > 0;
    let believed = {
        let mut mine = session.mine.lock();
        match mine.get_mut(&id) {
            None => return,
            Some(mine) if mine.phase == Phase::Holds => return,
            Some(mine) => {
                let confirmed = confirmed || mine.claim.confirmed;
                let believed = !confirmed && mine.believes(held.fence);
                if believed {
                    mine.phase = Phase::Holds;
                }
                believed
            }
        }
    };
    match believed {
        true => inbox.deliver(Event::Granted(id, held)),
        false => ask(session, inbox, id, None),
    }
}

/// Asks the server about a claim, once at a time: a flood of messages makes no flood of calls.
#[expect(
    clippy::disallowed_methods,
    reason = "the engine's own event loop: a message must not wait for an answer"
)]
fn ask(session: &Arc<RedisSession>, inbox: &Inbox, id: ClaimId, ended: Option<Ended>) {
    let claim = {
        let mut mine = session.mine.lock();
        let Some(mine) = mine.get_mut(&id) else {
            return;
        };
        mine.ended = ended.or(mine.ended.take());
        if mine.asking != Asking::No {
            mine.asking = Asking::Again;
            return;
        }
        mine.asking = Asking::Yes;
        mine.claim.clone()
    };
    let (session, inbox) = (session.clone(), inbox.clone());
    drop(tokio::spawn(async move {
        loop {
            settle(&session, &inbox, &claim).await;
            let mut mine = session.mine.lock();
            match mine.get_mut(&id) {
                Some(mine) if mine.asking == Asking::Again => mine.asking = Asking::Yes,
                Some(mine) => {
                    mine.asking = Asking::No;
                    return;
                }
                None => return,
            }
        }
    }));
}

/// Tells what the server says of a claim, if it is news. Without an answer the next heartbeat tells it.
async fn settle(session: &RedisSession, inbox: &Inbox, claim: &Arc<Claim>) {
    let known = |mine: &Mine| (mine.phase, mine.ended.clone());
    let Some((phase, why)) = session.mine.lock().get(&claim.id).map(known) else {
        return;
    };
    let id = claim.id;
    let asked = session.beat(std::slice::from_ref(claim), |_, standing| match standing {
        Standing::Held(held) if phase != Phase::Holds => {
            inbox.deliver(Event::Granted(id, held));
        }
        Standing::Gone => {
            let why = why.clone().unwrap_or(Ended::Expired);
            inbox.deliver(Event::Ended(id, why));
        }
        _ => {}
    });
    if let Err(trouble) = asked.await {
        tracing::debug!(?trouble, "a message is not confirmed yet");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::claim::Mode;
    use crate::name::Name;

    #[test]
    fn a_grant_is_believed_of_a_waiter_with_a_fence_that_can_be_true() {
        let lease = Duration::from_secs(1);
        let claim = Claim::new(Name::new("x").unwrap(), Mode::Mutex, lease);
        let mut mine = Mine::new(Arc::new(claim));
        let server = 1_800_000_000_000_000;
        assert!(!mine.believes(Fence::new(server)), "not answered yet");
        mine.waits(server);
        assert!(mine.believes(Fence::new(server + 1)));
        assert!(!mine.believes(Fence::new(server + 2 * AHEAD)));
        assert!(!mine.believes(Fence::new(i64::MAX as u64)));
        mine.waits(MOST);
        assert!(!mine.believes(Fence::new(MOST + 1)));
        mine.phase = Phase::Holds;
        assert!(!mine.believes(Fence::new(server + 1)), "it holds already");
    }
}
