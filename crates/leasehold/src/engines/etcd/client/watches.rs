//! Watches over one stream. Each resolves once; a new connection goes on with those that are open, from the revision
//! they began at, so that no change is missed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::proto::{WatchCancel, WatchCreate, WatchOp, WatchRequest, WatchResponse};
use crate::sync::Shared;

#[derive(Default)]
pub(super) struct Watches(Shared<Table>);

#[derive(Default)]
struct Table {
    last: i64,
    open: HashMap<i64, Open>,
    /// The stream of the connection there is.
    stream: Option<mpsc::UnboundedSender<WatchRequest>>,
    /// No watch will ever be told of anything again.
    over: bool,
}

/// A watch that is open.
struct Open {
    /// The lease whose claim watches.
    owner: i64,
    create: WatchCreate,
    fire: oneshot::Sender<()>,
}

impl Table {
    fn send(&self, op: WatchOp) {
        if let Some(stream) = &self.stream {
            let _ = stream.send(WatchRequest { op: Some(op) });
        }
    }

    fn cancel(&self, watch_id: i64) {
        self.send(WatchOp::Cancel(WatchCancel { watch_id }));
    }
}

impl Watches {
    /// Goes on over a new connection.
    pub(super) fn over(&self, stream: mpsc::UnboundedSender<WatchRequest>) {
        let mut table = self.0.lock();
        table.stream = Some(stream);
        for open in table.open.values() {
            table.send(WatchOp::Create(open.create.clone()));
        }
    }

    /// Ends every watch.
    pub(super) fn end(&self) {
        let mut table = self.0.lock();
        table.over = true;
        table.open.clear();
        table.stream = None;
    }

    /// An answer of the server. A watch that the server ends, because its revision was compacted say, resolves: its user
    /// looks again.
    pub(super) fn told(&self, answer: &WatchResponse) {
        if answer.events.is_empty() && !answer.canceled {
            return;
        }
        let mut table = self.0.lock();
        let Some(open) = table.open.remove(&answer.watch_id) else {
            return;
        };
        let _ = open.fire.send(());
        match answer.canceled {
            true => tracing::debug!(why = answer.cancel_reason, "the server ended a watch"),
            false => table.cancel(answer.watch_id),
        }
    }

    /// The watches of a lease's claims.
    pub(super) fn of(&self, owner: i64) -> Vec<WatchCreate> {
        let table = self.0.lock();
        let own = table.open.values().filter(|open| open.owner == owner);
        own.map(|open| open.create.clone()).collect()
    }

    /// Resolves a watch whose event is on its way: a read has found the change.
    pub(super) fn overtake(&self, id: i64) {
        let mut table = self.0.lock();
        if let Some(open) = table.open.remove(&id) {
            let _ = open.fire.send(());
            table.cancel(id);
        }
    }

    fn begin(&self, owner: i64, mut create: WatchCreate) -> (i64, oneshot::Receiver<()>) {
        let (fire, fired) = oneshot::channel();
        let mut table = self.0.lock();
        table.last += 1;
        let id = table.last;
        create.watch_id = id;
        if !table.over {
            table.send(WatchOp::Create(create.clone()));
            let open = Open {
                owner,
                create,
                fire,
            };
            let _ = table.open.insert(id, open);
        }
        (id, fired)
    }

    fn forget(&self, id: i64) {
        let mut table = self.0.lock();
        if table.open.remove(&id).is_some() {
            table.cancel(id);
        }
    }
}

/// Forgets a watch that is not waited for any more.
struct Waiting(Arc<Watches>, i64);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

/// Waits for the next change. The server is asked after `delay`: what happens meanwhile is not missed, and a wait that
/// ends sooner costs no request.
pub(super) async fn wait(watches: Arc<Watches>, owner: i64, create: WatchCreate, delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    let (id, fired) = watches.begin(owner, create);
    let _waiting = Waiting(watches, id);
    let _ = fired.await;
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a task that waits is watched")]
mod tests {
    use super::*;

    fn create(key: &str) -> WatchCreate {
        WatchCreate {
            key: key.into(),
            start_revision: 7,
            ..WatchCreate::default()
        }
    }

    fn event(watch_id: i64, canceled: bool) -> WatchResponse {
        let events = if canceled {
            vec![]
        } else {
            vec![super::super::proto::Change {}]
        };
        WatchResponse {
            watch_id,
            canceled,
            events,
            ..WatchResponse::default()
        }
    }

    #[tokio::test]
    async fn a_new_connection_goes_on_with_what_is_open() {
        let watches = Arc::new(Watches::default());
        let (first, mut sent) = mpsc::unbounded_channel();
        watches.over(first);
        let waits = tokio::spawn(wait(watches.clone(), 5, create("a"), Duration::ZERO));
        let asked = sent.recv().await.unwrap();
        let (second, mut sent) = mpsc::unbounded_channel();
        watches.over(second);
        assert_eq!(sent.recv().await.unwrap(), asked);
        assert_eq!(watches.of(5).len(), 1);
        assert_eq!(watches.of(6).len(), 0);
        // Another answer changes nothing; a cancelled one resolves.
        watches.told(&event(9, false));
        watches.told(&WatchResponse {
            watch_id: 1,
            ..WatchResponse::default()
        });
        watches.told(&event(1, true));
        waits.await.unwrap();
        assert!(sent.try_recv().is_err());
    }

    #[tokio::test]
    async fn a_watch_that_is_dropped_is_cancelled_and_the_end_resolves_all() {
        let watches = Arc::new(Watches::default());
        let (stream, mut sent) = mpsc::unbounded_channel();
        watches.over(stream);
        let waits = tokio::spawn(wait(watches.clone(), 5, create("a"), Duration::ZERO));
        let _ = sent.recv().await.unwrap();
        waits.abort();
        let cancel = sent.recv().await.unwrap().op;
        assert!(matches!(cancel, Some(WatchOp::Cancel(cancel)) if cancel.watch_id == 1));
        let waits = tokio::spawn(wait(watches.clone(), 5, create("b"), Duration::ZERO));
        let _ = sent.recv().await.unwrap();
        watches.end();
        waits.await.unwrap();
        wait(watches, 5, create("c"), Duration::ZERO).await;
    }
}
