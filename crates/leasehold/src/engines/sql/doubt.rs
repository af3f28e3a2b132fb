//! Notifications are believed once the tables agree: every role of the database can send them, and a role that watches
//! the server can read the ids they need.

use std::sync::Weak;

use tokio::sync::Notify;

use super::listen::Watch;
use super::op::{Answer, Op};
use super::world::World;
use crate::claim::{ById, ClaimId, SessionId};
use crate::engine::{Event, Held};
use crate::fence::Fence;
use crate::sync::Shared;

/// What was told and not yet looked at: at most one piece of news for each claim of this process.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    news: Shared<ById<ClaimId, (SessionId, Event)>>,
    more: Notify,
}

impl Doubts {
    pub(super) fn add(&self, watch: &Watch, session: SessionId, event: Event) {
        let (Event::Granted(claim, _) | Event::Ended(claim, _)) = &event else {
            return;
        };
        let claim = *claim;
        if watch.key(claim).is_some() {
            let _ = self.news.lock().insert(claim, (session, event));
            self.more.notify_one();
        }
    }

    fn take(&self) -> Option<(ClaimId, SessionId, Event)> {
        let mut news = self.news.lock();
        let claim = *news.keys().next()?;
        let (session, event) = news.remove(&claim)?;
        Some((claim, session, event))
    }
}

/// Looks at each claim that a notification was about, and delivers what is true.
pub(super) async fn settle(world: Weak<World>) {
    loop {
        let Some(alive) = world.upgrade() else { return };
        let Some((claim, session, event)) = alive.doubts.take() else {
            tokio::select! {
                () = alive.doubts.more.notified() => {}
                // The engine is not kept alive by a task that only waits for it.
                () = tokio::time::sleep(std::time::Duration::from_secs(1)) => {}
            }
            continue;
        };
        let Some(key) = alive.watch.key(claim) else {
            continue;
        };
        let seen = match alive
            .ask(&alive.beats, Vec::new(), Op::See(key, claim))
            .await
        {
            Ok(Answer::Seen(seen)) => seen,
            // The next heartbeat tells.
            _ => continue,
        };
        if let Some(event) = agreed(event, seen) {
            alive.deliver(session, event);
        }
    }
}

/// What the tables confirm of an event; the fence is theirs.
fn agreed(told: Event, seen: Option<u64>) -> Option<Event> {
    match (told, seen) {
        (Event::Granted(claim, held), Some(more)) if more > 1 => {
            let fence = Fence::new(more - 1);
            Some(Event::Granted(claim, Held { fence, ..held }))
        }
        (ended @ Event::Ended(..), None) => Some(ended),
        _ => None,
    }
}
