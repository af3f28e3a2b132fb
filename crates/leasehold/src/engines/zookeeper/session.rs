//! One client's life: its claims, and the ZooKeeper sessions they live on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};

use super::World;
use super::link::{Link, failed};
use super::ticket::{Command, Status, Ticket, live};
use super::wire::Trouble;
use crate::claim::{ById, Claim, ClaimId};
use crate::engine::{Clock, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
use crate::sync::Shared;

/// What a session and the tasks of its claims share.
#[derive(Debug)]
pub(super) struct Core {
    world: Arc<World>,
    pub(super) who: Identity,
    pub(super) inbox: Inbox,
    claims: Shared<ById<ClaimId, Entry>>,
    /// The ZooKeeper sessions, one per lease that differs much; one, that is, for nearly everybody.
    links: tokio::sync::Mutex<Vec<Arc<Link>>>,
    closed: AtomicBool,
}

#[derive(Debug, Clone)]
struct Entry {
    ticket: Arc<Ticket>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Core {
    pub(super) fn clock(&self) -> &Clock {
        &self.world.clock
    }

    pub(super) fn root(&self) -> &str {
        self.world.config.root()
    }

    pub(super) fn forget(&self, id: ClaimId) {
        drop(self.claims.lock().remove(&id));
    }

    fn entry(&self, id: ClaimId) -> Option<Entry> {
        self.claims.lock().get(&id).cloned()
    }

    /// The ZooKeeper session for claims of this lease.
    pub(super) async fn link(&self, lease: Duration) -> Result<Arc<Link>> {
        let mut links = self.links.lock().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::closed(Step::Claim).on("zookeeper"));
        }
        // Nobody lives on a session that only this list knows and that does not fit.
        links.retain(|link| {
            !link.over.is_cancelled() && (link.fits(lease) || Arc::strong_count(link) > 1)
        });
        if let Some(link) = links.iter().find(|link| link.fits(lease)) {
            return Ok(link.clone());
        }
        let inbox = Some(self.inbox.clone());
        let link = Link::open(&self.world.config, lease, inbox).await?;
        links.push(link.clone());
        self.world.remember(&link);
        Ok(link)
    }

    /// One write per ZooKeeper session: a majority knows it, and what was told before has arrived.
    async fn heard(&self) -> Result<()> {
        let links = self.links.lock().await.clone();
        for link in links {
            match link.wire.prove().await {
                Ok(()) => {}
                // Its claims know that it is over before they are asked where they stand.
                Err(Trouble::Dead(_)) => link.over.cancel(),
                Err(trouble) => return Err(failed(&trouble, Step::Heartbeat)),
            }
        }
        Ok(())
    }
}

/// A session of this engine.
#[derive(Debug)]
pub(super) struct ZkSession(Arc<Core>);

impl ZkSession {
    pub(super) async fn open(world: Arc<World>, who: Identity, inbox: Inbox) -> Result<Self> {
        let core = Arc::new(Core {
            world,
            who,
            inbox,
            claims: Shared::default(),
            links: tokio::sync::Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let _ = core.link(core.world.config.lease).await?;
        Ok(Self(core))
    }

    /// The claim's entry, with a task behind it. Nothing is awaited here: a dropped call leaves all or nothing.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    fn begin(&self, claim: &Claim) -> Result<(Entry, bool)> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(Error::closed(Step::Claim).on("zookeeper"));
        }
        let mut claims = self.0.claims.lock();
        let now = self.0.clock().now();
        if let Some(entry) = claims.get(&claim.id) {
            entry.ticket.said.store(now, Ordering::Release);
            return Ok((entry.clone(), false));
        }
        let ticket = Arc::new(Ticket {
            core: self.0.clone(),
            claim: claim.clone(),
            status: watch::channel(Status::Asking).0,
            said: AtomicU64::new(now),
            kept: OnceLock::new(),
        });
        let (commands, inbox) = mpsc::unbounded_channel();
        drop(tokio::spawn(live(ticket.clone(), inbox)));
        let entry = Entry { ticket, commands };
        let _ = claims.insert(claim.id, entry.clone());
        Ok((entry, true))
    }
}

impl Entry {
    /// Where the claim stands once that is known.
    async fn standing(&self) -> Result<Standing> {
        let mut status = self.ticket.status.subscribe();
        let known = status.wait_for(|status| !matches!(status, Status::Asking));
        match known.await.map(|status| status.clone()) {
            Ok(Status::Is(standing)) => Ok(standing),
            Ok(Status::Refused(kind, what)) => {
                Err(Error::new(kind, Step::Claim, what).on("zookeeper"))
            }
            Ok(Status::Asking) | Err(_) => Ok(Standing::Gone),
        }
    }

    /// Lets the task take in what it was told before, and says where the claim stands then.
    async fn settled(&self) -> Standing {
        let (reply, settled) = oneshot::channel();
        let sent = self.commands.send(Command::Settle(reply));
        let lives = sent.is_ok() && settled.await.is_ok();
        match &*self.ticket.status.borrow() {
            // Its task has ended and is about to say so.
            Status::Is(Standing::Held(_) | Standing::Waiting { .. }) if !lives => Standing::Gone,
            Status::Is(standing) => *standing,
            Status::Asking | Status::Refused(..) => Standing::Gone,
        }
    }
}

#[async_trait]
impl Session for ZkSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let (entry, new) = self.begin(claim)?;
        let standing = entry.standing().await?;
        if new {
            return Ok(standing);
        }
        let lighter = claim.mode.weight() < entry.ticket.claim.mode.weight();
        if lighter && matches!(standing, Standing::Held(_)) {
            let (reply, answer) = oneshot::channel();
            let _ = entry.commands.send(Command::Downgrade(reply));
            return answer.await.unwrap_or(Ok(Standing::Gone));
        }
        // The caller counts its lease from this call: the server must have heard of us since.
        self.0.heard().await?;
        Ok(entry.settled().await)
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>> {
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.0.clock().now();
        let entries: Vec<_> = claims.iter().map(|claim| self.0.entry(claim.id)).collect();
        for entry in entries.iter().flatten() {
            entry.ticket.said.store(now, Ordering::Release);
        }
        self.0.heard().await?;
        let mut standings = Vec::with_capacity(entries.len());
        for entry in entries {
            standings.push(match entry {
                Some(entry) => entry.settled().await,
                None => Standing::Gone,
            });
        }
        Ok(standings)
    }

    fn lease(&self, claim: &Claim) -> Duration {
        let entry = self.0.entry(claim.id);
        let kept = entry.and_then(|entry| entry.ticket.kept.get().copied());
        kept.unwrap_or(claim.lease)
    }

    async fn release(&self, claim: &Claim, _used: u32) -> Result<Release> {
        let Some(entry) = self.0.entry(claim.id) else {
            return Ok(Release::Gone);
        };
        let (reply, answer) = oneshot::channel();
        let _ = entry.commands.send(Command::Leave(reply));
        answer.await.unwrap_or(Ok(Release::Gone))
    }

    async fn close(&self) -> Result<()> {
        self.0.closed.store(true, Ordering::Release);
        let links = std::mem::take(&mut *self.0.links.lock().await);
        for link in links {
            link.close().await;
        }
        Ok(())
    }
}
