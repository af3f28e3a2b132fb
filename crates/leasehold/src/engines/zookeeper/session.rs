//! One client's life: its claims, and the ZooKeeper sessions they live on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::World;
use super::link::{Link, failed};
use super::rest::{self, DEAF, Unattended, watch_over};
use super::ticket::{Board, Command, Stage, Status, Ticket, join, leave};
use super::wire::Trouble;
use crate::claim::{ById, Claim, ClaimId};
use crate::clock::{Micros, micros};
use crate::engine::{Clock, Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
use crate::name::Name;
use crate::sync::Shared;

/// What a session and the tasks of its claims share.
#[derive(Debug)]
pub(super) struct Core {
    world: Arc<World>,
    pub(super) who: Arc<Identity>,
    pub(super) inbox: Inbox,
    claims: Shared<ById<ClaimId, Arc<Ticket>>>,
    unattended: Shared<Unattended>,
    /// Where it was opened.
    runtime: Handle,
    /// The ZooKeeper sessions, one per lease that differs much; one, that is, for nearly everybody.
    links: tokio::sync::Mutex<Vec<Arc<Link>>>,
    closed: AtomicBool,
}

impl Core {
    pub(super) fn clock(&self) -> &Clock {
        &self.world.clock
    }

    pub(super) fn root(&self) -> &str {
        self.world.config.root()
    }

    /// The node of a name.
    pub(super) fn base(&self, name: &Name) -> String {
        self.world.base(name)
    }

    pub(super) fn forget(&self, id: ClaimId) {
        drop(self.claims.lock().remove(&id));
    }

    fn ticket(&self, id: ClaimId) -> Option<Arc<Ticket>> {
        self.claims.lock().get(&id).cloned()
    }

    /// Starts a task, also for a caller who gives up outside of any runtime.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let runtime = Handle::try_current().unwrap_or_else(|_| self.runtime.clone());
        runtime.spawn(task).abort_handle()
    }

    /// Leaves a claim to its calls until then, and to a task after that.
    pub(super) fn attend(self: &Arc<Self>, ticket: &Arc<Ticket>, until: Micros) {
        let mut unattended = self.unattended.lock();
        unattended.add(ticket.clone(), until);
        if !unattended.is_watched() {
            unattended.watched_by(self.spawn(watch_over(self.clone())));
        }
    }

    /// Those who need a task now, and when to look again.
    pub(super) fn take_due(&self) -> (Vec<Arc<Ticket>>, Option<Micros>) {
        let now = self.clock().now();
        self.unattended.lock().take(now)
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
        // In a box: most find a session, and should not make room for opening one.
        let link = Box::pin(Link::open(&self.world.config, lease, inbox)).await?;
        links.push(link.clone());
        self.world.remember(&link);
        Ok(link)
    }

    /// The ZooKeeper session on which the claim may see by its number that it is alone.
    fn knows(&self, claim: &Claim) -> Option<Arc<Link>> {
        let links = self.links.try_lock().ok()?;
        let mut links = links.iter();
        let link = links.find(|link| link.fits(claim.lease))?;
        link.grounds.know(&claim.name).then(|| link.clone())
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
            who: Arc::new(who),
            inbox,
            claims: Shared::default(),
            links: tokio::sync::Mutex::default(),
            unattended: Shared::default(),
            runtime: Handle::current(),
            closed: AtomicBool::new(false),
        });
        let _ = core.link(core.world.config.lease).await?;
        Ok(Self(core))
    }

    /// The claim's ticket, and whether it is new.
    fn begin(&self, claim: &Claim) -> Result<(Arc<Ticket>, bool)> {
        if self.0.closed.load(Ordering::Acquire) {
            return Err(Error::closed(Step::Claim).on("zookeeper"));
        }
        let mut claims = self.0.claims.lock();
        let now = self.0.clock().now();
        if let Some(ticket) = claims.get(&claim.id) {
            ticket.said.store(now, Ordering::Release);
            return Ok((ticket.clone(), false));
        }
        let ticket = Arc::new(Ticket {
            core: self.0.clone(),
            claim: claim.clone(),
            board: Board::default(),
            stage: Shared::from(Stage::InHand(Vec::new())),
            step: rest::Step::default(),
            said: AtomicU64::new(now),
            kept: OnceLock::new(),
        });
        let _ = claims.insert(claim.id, ticket.clone());
        Ok((ticket, true))
    }
}

impl Ticket {
    /// Whoever calls takes this step, but not for long.
    fn begin(self: &Arc<Self>, step: impl Future<Output = ()> + Send + 'static) {
        self.step.begin(step);
        let until = self.core.clock().now() + micros(DEAF);
        self.core.attend(self, until);
    }

    /// Where the claim stands once that is known.
    async fn standing(&self) -> Result<Standing> {
        match self.board.known().await {
            Status::Is(standing) => Ok(standing),
            Status::Refused(kind, what) => Err(Error::new(kind, Step::Claim, what).on("zookeeper")),
            Status::Asking => Ok(Standing::Gone),
        }
    }

    /// Lets the task take in what it was told before, and says where the claim stands then.
    async fn settled(self: &Arc<Self>) -> Standing {
        let (reply, settled) = oneshot::channel();
        self.send(Command::Settle(reply));
        let lives = settled.await.is_ok();
        match self.board.now() {
            // Its task has ended and is about to say so.
            Status::Is(Standing::Held(_) | Standing::Waiting { .. }) if !lives => Standing::Gone,
            Status::Is(standing) => standing,
            Status::Asking | Status::Refused(..) => Standing::Gone,
        }
    }
}

#[async_trait]
impl Session for ZkSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let (ticket, new) = self.begin(claim)?;
        if new {
            let core = &self.0;
            match core.knows(claim) {
                Some(link) => ticket.begin(join(ticket.clone(), Some(link))),
                // That may be a long way: what was given up should be over soon.
                None => drop(core.spawn(join(ticket.clone(), None))),
            }
            let standing = ticket.standing();
            return ticket.step.on_the_way_to(standing, core).await;
        }
        let standing = ticket.standing().await?;
        let lighter = claim.mode.weight() < ticket.claim.mode.weight();
        if lighter && matches!(standing, Standing::Held(_)) {
            let (reply, answer) = oneshot::channel();
            ticket.send(Command::Downgrade(reply));
            return answer.await.unwrap_or(Ok(Standing::Gone));
        }
        // The caller counts its lease from this call: the server must have heard of us since.
        self.0.heard().await?;
        Ok(ticket.settled().await)
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        let now = self.0.clock().now();
        let tickets: Vec<_> = claims.iter().map(|claim| self.0.ticket(claim.id)).collect();
        for ticket in tickets.iter().flatten() {
            ticket.said.store(now, Ordering::Release);
        }
        self.0.heard().await?;
        for (claim, ticket) in claims.iter().zip(tickets) {
            let standing = match ticket {
                Some(ticket) => ticket.settled().await,
                None => Standing::Gone,
            };
            heard(claim, standing);
        }
        Ok(())
    }

    fn lease(&self, claim: &Claim) -> Duration {
        let ticket = self.0.ticket(claim.id);
        let kept = ticket.and_then(|ticket| ticket.kept.get().copied());
        kept.unwrap_or(claim.lease)
    }

    async fn release(&self, claim: &Claim, _used: u32) -> Result<Release> {
        let Some(ticket) = self.0.ticket(claim.id) else {
            return Ok(Release::Gone);
        };
        let (reply, answer) = oneshot::channel();
        match ticket.pick_up() {
            Some(place) => ticket.begin(leave(ticket.clone(), place, reply)),
            None => ticket.send(Command::Leave(reply)),
        }
        let answer = ticket.step.on_the_way_to(answer, &self.0).await;
        answer.unwrap_or(Ok(Release::Gone))
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
