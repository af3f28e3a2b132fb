//! Waiting: asking again after a random while, or when a majority of nodes said that it may be free.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::entry::Entry;
use super::session::RedlockSession;
use crate::engine::{Event, Standing};

/// Waits for a claim until it holds or its session gives it up.
#[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
pub(super) fn start(session: Weak<RedlockSession>, entry: Arc<Entry>, first: Duration) {
    drop(tokio::spawn(async move {
        let mut again = first;
        while !entry.over.load(Ordering::Acquire) && entry.fence().is_none() {
            // Random, so that two claims that met once do not meet each time.
            let pause = again.mul_f64(0.5 + rand::random::<f64>());
            let _ = tokio::time::timeout(pause, entry.hinted.notified()).await;
            let Some(session) = session.upgrade() else {
                return;
            };
            again = look(&session, &entry).await.unwrap_or(first);
        }
    }));
}

/// Tries once; says when to try again.
async fn look(session: &RedlockSession, entry: &Entry) -> Option<Duration> {
    let _talk = entry.talk.lock().await;
    if entry.fence().is_some() {
        return None;
    }
    match session.try_for(entry).await {
        Ok(Standing::Held(held)) => {
            session.inbox.deliver(Event::Granted(entry.claim.id, held));
            None
        }
        Ok(Standing::Waiting { look_again, .. }) => Some(look_again),
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "waiting goes on");
            None
        }
    }
}
