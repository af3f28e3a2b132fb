//! The sessions of one client at the server: one for each lease in use.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{Deployment, Fail, Server};
use crate::engine::Inbox;
use crate::error::{Error, Step};
use crate::sync::Shared;

/// How many sessions without a claim are kept for the next claims of their leases.
const IDLE: usize = 4;

#[derive(Debug)]
pub(super) struct Servers<D: Deployment> {
    deployment: Arc<D>,
    inbox: Inbox,
    all: Shared<Vec<Arc<D::Server>>>,
    /// Locked by the claim that waits for it; the next claim of its lease waits on.
    opening: tokio::sync::Mutex<Option<Opening<D::Server>>>,
    runtime: Handle,
    closed: AtomicBool,
}

/// A session that is being opened, for claims of this lease.
#[derive(Debug)]
struct Opening<S> {
    lease: Duration,
    task: JoinHandle<Result<Weak<S>, Fail>>,
}

impl<D: Deployment> Servers<D> {
    pub(super) fn new(deployment: Arc<D>, inbox: Inbox, runtime: Handle) -> Self {
        Self {
            deployment,
            inbox,
            all: Shared::default(),
            opening: tokio::sync::Mutex::default(),
            runtime,
            closed: AtomicBool::new(false),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// The session for claims of this lease, opened if there is none. Dropped, this leaves the one that is being opened to
    /// the next claim: claims that give up soon do not ask the server for a session each.
    pub(super) async fn open(self: &Arc<Self>, lease: Duration) -> Result<Arc<D::Server>, Fail> {
        loop {
            if let Some(server) = self.there(lease)? {
                return Ok(server);
            }
            let mut opening = self.opening.lock().await;
            if let Some(server) = self.there(lease)? {
                return Ok(server);
            }
            let under_way = opening.get_or_insert_with(|| Opening {
                lease,
                task: self.runtime.spawn(self.clone().add(lease)),
            });
            let opened = (&mut under_way.task).await;
            let same = under_way.lease == lease;
            *opening = None;
            match opened {
                Ok(Ok(server)) if same => {
                    if let Some(server) = server.upgrade() {
                        return Ok(server);
                    }
                }
                Ok(Err(fail)) if same => return Err(fail),
                // That of another lease; now this one.
                Ok(_) => {}
                Err(_) => {
                    let ended = "the runtime that this client was opened on has ended";
                    return Err(Fail::Over(ended.to_owned()));
                }
            }
        }
    }

    async fn add(self: Arc<Self>, lease: Duration) -> Result<Weak<D::Server>, Fail> {
        let opened = self.deployment.open(lease, self.inbox.clone()).await?;
        let mut all = self.all.lock();
        if self.is_closed() {
            return Err(Error::closed(Step::Claim).into());
        }
        let idle = |server: &Arc<D::Server>| Arc::strong_count(server) == 1;
        while all.iter().filter(|server| idle(server)).count() >= IDLE
            && let Some(oldest) = all.iter().position(idle)
        {
            drop(all.remove(oldest));
        }
        all.push(opened.clone());
        Ok(Arc::downgrade(&opened))
    }

    fn there(&self, lease: Duration) -> Result<Option<Arc<D::Server>>, Fail> {
        if self.is_closed() {
            return Err(Error::closed(Step::Claim).into());
        }
        let mut all = self.all.lock();
        all.retain(|server| !server.over().is_cancelled());
        let fits = all.iter().find(|server| server.fits(lease));
        Ok(fits.cloned())
    }

    /// Ends all sessions; no other is opened.
    pub(super) async fn close(&self) {
        let servers = {
            let mut all = self.all.lock();
            self.closed.store(true, Ordering::Release);
            std::mem::take(&mut *all)
        };
        for server in servers {
            server.close().await;
        }
    }
}
