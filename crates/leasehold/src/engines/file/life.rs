//! A session's presence in the directory, and the one task that hears for it.

use std::sync::{Arc, Weak};

use tokio::net::UnixDatagram;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;

use super::alive::Presence;
use super::dir::Dir;
use super::error::Trouble;
use super::push;
use super::session::FileSession;
use super::tidy::IDLE;
use crate::claim::SessionId;
use crate::engine::{Identity, Inbox};

/// A session as the directory knows it. Should the directory be removed, the session gets another one.
pub(super) struct Life {
    pub(super) presence: Presence,
    /// Hears which of the watched sessions have ended.
    pub(super) ended: UnboundedSender<SessionId>,
    task: AbortHandle,
}

impl Life {
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(super) fn begin(
        dir: &Dir,
        who: &Identity,
        inbox: &Inbox,
        session: &Weak<FileSession>,
        untidy: &Arc<Notify>,
    ) -> Result<Self, Trouble> {
        let presence = Presence::open(dir, who)?;
        let socket = push::bind(&dir.socket(presence.id))?;
        let (ended, ends) = unbounded_channel();
        let (inbox, session, untidy) = (inbox.clone(), session.clone(), untidy.clone());
        let task = tokio::spawn(async move {
            let _ = tokio::join!(
                hear(socket, inbox),
                bury(ends, session.clone()),
                tidy(untidy, session)
            );
        });
        Ok(Self {
            presence,
            ended,
            task: task.abort_handle(),
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes what other processes send. What is not ours is ignored.
async fn hear(socket: UnixDatagram, inbox: Inbox) {
    let mut message = [0; push::LARGEST];
    loop {
        match socket.recv(&mut message).await {
            Ok(length) => {
                if let Some(event) = push::decode(&message[..length]) {
                    inbox.deliver(event);
                }
            }
            Err(error) => {
                // Heartbeats go on without it.
                tracing::warn!(%error, "cannot hear other processes");
                return;
            }
        }
    }
}

async fn bury(mut ends: UnboundedReceiver<SessionId>, session: Weak<FileSession>) {
    while let Some(dead) = ends.recv().await {
        if let Some(session) = session.upgrade() {
            session.bury(dead).await;
        }
    }
}

async fn tidy(untidy: Arc<Notify>, session: Weak<FileSession>) {
    loop {
        untidy.notified().await;
        tokio::time::sleep(IDLE).await;
        if let Some(session) = session.upgrade() {
            session.tidy(IDLE);
        }
    }
}
