//! One client's session: its claims.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::claim::live;
use super::servers::Servers;
use super::{Deployment, Fail, Server};
use crate::claim::{ById, Claim, ClaimId};
use crate::clock::{Micros, micros};
use crate::engine::{Clock, Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
use crate::sync::Shared;

/// Shared by the session and the tasks of its claims.
#[derive(Debug)]
pub(super) struct Core<D: Deployment> {
    pub(super) who: Arc<Identity>,
    pub(super) inbox: Inbox,
    pub(super) clock: Clock,
    claims: Shared<ById<ClaimId, Arc<Ticket<D::Server>>>>,
    pub(super) servers: Arc<Servers<D>>,
    runtime: Handle,
}

impl<D: Deployment> Core<D> {
    pub(super) fn forget(&self, id: ClaimId) {
        drop(self.claims.lock().remove(&id));
    }

    fn ticket(&self, id: ClaimId) -> Option<Arc<Ticket<D::Server>>> {
        self.claims.lock().get(&id).cloned()
    }
}

/// Takes the answer to "where does this claim stand".
pub(super) type Tell = Box<dyn FnOnce(Result<Standing, Fail>) + Send>;

/// A call of the session, sent to a claim's task.
pub(super) enum Command {
    /// Answer once the claim has joined, and everything that the server told before this was taken in.
    Stand(Tell),
    Downgrade(Tell),
    Leave(oneshot::Sender<Result<Release>>),
}

/// A claim, as its session and its task know it.
pub(super) struct Ticket<S> {
    pub(super) claim: Claim,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    /// When the session last spoke of the claim.
    pub(super) said: AtomicU64,
    /// The session at the server that its nodes belong to.
    pub(super) server: OnceLock<Arc<S>>,
}

impl<S> fmt::Debug for Ticket<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:?})", self.claim)
    }
}

impl<S> Ticket<S> {
    /// Asks the task; a task that has ended answers that the claim is gone.
    pub(super) fn ask(&self, command: Command) {
        if let Err(mpsc::error::SendError(command)) = self.commands.send(command) {
            command.answer(&Ok(Standing::Gone));
        }
    }

    /// When the claim ends unless its session speaks of it again.
    pub(super) fn silent_until(&self) -> Micros {
        let said = self.said.load(Ordering::Acquire);
        said.saturating_add(micros(self.claim.lease))
    }
}

impl Command {
    /// Answers for a claim whose life is over.
    pub(super) fn answer(self, last: &Result<Standing, Fail>) {
        match self {
            Self::Stand(tell) => tell(last.clone()),
            Self::Downgrade(tell) => tell(Ok(Standing::Gone)),
            Self::Leave(reply) => drop(reply.send(Ok(Release::Gone))),
        }
    }
}

/// A session of an engine whose server orders nodes.
#[derive(Debug)]
pub(in crate::engines) struct OrderedSession<D: Deployment>(Arc<Core<D>>);

impl<D: Deployment> OrderedSession<D> {
    pub(in crate::engines) async fn open(
        deployment: Arc<D>,
        who: &Identity,
        inbox: Inbox,
    ) -> Result<Self> {
        let lease = deployment.lease();
        let runtime = Handle::current();
        let servers = Arc::new(Servers::new(deployment, inbox.clone(), runtime.clone()));
        let first = servers.open(lease).await;
        let _ = first.map_err(|fail| fail.error::<D::Server>(Step::Open))?;
        Ok(Self(Arc::new(Core {
            who: Arc::new(who.clone()),
            inbox,
            clock: Clock::boot(),
            claims: Shared::default(),
            servers,
            runtime,
        })))
    }

    /// The claim's ticket, with its task if it is new, and whether it is.
    fn begin(&self, claim: &Claim) -> Result<(Arc<Ticket<D::Server>>, bool)> {
        let core = &self.0;
        if core.servers.is_closed() {
            return Err(Error::closed(Step::Claim).on(D::Server::KIND));
        }
        let mut claims = core.claims.lock();
        let now = core.clock.now();
        if let Some(ticket) = claims.get(&claim.id) {
            ticket.said.store(now, Ordering::Release);
            return Ok((ticket.clone(), false));
        }
        let (commands, inbox) = mpsc::unbounded_channel();
        let ticket = Arc::new(Ticket {
            claim: claim.clone(),
            commands,
            said: AtomicU64::new(now),
            server: OnceLock::new(),
        });
        let _ = claims.insert(claim.id, ticket.clone());
        drop(claims);
        // The runtime of the caller may end before the claim does.
        drop(
            core.runtime
                .spawn(live(core.clone(), ticket.clone(), inbox)),
        );
        Ok((ticket, true))
    }

    /// Asks a claim's task, and waits for the answer.
    async fn ask(
        &self,
        ticket: &Ticket<D::Server>,
        command: fn(Tell) -> Command,
    ) -> Result<Standing> {
        let (tell, told) = oneshot::channel();
        ticket.ask(command(Box::new(move |answer| drop(tell.send(answer)))));
        let answer = told.await.unwrap_or(Ok(Standing::Gone));
        answer.map_err(|fail| fail.error::<D::Server>(Step::Claim))
    }
}

#[async_trait]
impl<D: Deployment> Session for OrderedSession<D> {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let (ticket, new) = self.begin(claim)?;
        let standing = self.ask(&ticket, Command::Stand).await?;
        if new {
            return Ok(standing);
        }
        if claim.mode.weight() < ticket.claim.mode.weight() && matches!(standing, Standing::Held(_))
        {
            return self.ask(&ticket, Command::Downgrade).await;
        }
        // The caller counts its lease from this call: the server must have heard of the session since.
        if let Some(server) = ticket.server.get() {
            alive(&**server, Step::Claim).await?;
        }
        self.ask(&ticket, Command::Stand).await
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        let now = self.0.clock.now();
        let (tell, mut told) = mpsc::unbounded_channel();
        let mut groups: Vec<(Arc<D::Server>, Vec<(usize, Arc<Ticket<D::Server>>)>)> = Vec::new();
        for (at, claim) in claims.iter().enumerate() {
            let Some(ticket) = self.0.ticket(claim.id) else {
                heard(claim, Standing::Gone);
                continue;
            };
            ticket.said.store(now, Ordering::Release);
            // A claim that has no server yet has not been answered yet either.
            let Some(server) = ticket.server.get().cloned() else {
                continue;
            };
            let same = |(other, _): &&mut (Arc<D::Server>, _)| Arc::ptr_eq(other, &server);
            match groups.iter_mut().find(same) {
                Some((_, group)) => group.push((at, ticket)),
                None => groups.push((server, vec![(at, ticket)])),
            }
        }
        // Side by side: a silent session keeps no claim of another from its answer. Dropped, nothing goes on.
        let mut beats: JoinSet<Result<()>> = JoinSet::new();
        for (server, group) in groups {
            let tell = tell.clone();
            let _ = beats.spawn(async move {
                alive(&*server, Step::Heartbeat).await?;
                for (at, ticket) in group {
                    let tell = tell.clone();
                    ticket.ask(Command::Stand(Box::new(move |standing| {
                        let _ = tell.send((at, standing));
                    })));
                }
                Ok(())
            });
        }
        drop(tell);
        while let Some((at, standing)) = told.recv().await {
            if let Ok(standing) = standing {
                heard(&claims[at], standing);
            }
        }
        while let Some(beat) = beats.join_next().await {
            beat.unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    fn lease(&self, claim: &Claim) -> Duration {
        let ticket = self.0.ticket(claim.id);
        let server = ticket.as_ref().and_then(|ticket| ticket.server.get());
        server.map_or(claim.lease, |server| server.timeout())
    }

    async fn release(&self, claim: &Claim, _used: u32) -> Result<Release> {
        let Some(ticket) = self.0.ticket(claim.id) else {
            return Ok(Release::Gone);
        };
        let (reply, answer) = oneshot::channel();
        ticket.ask(Command::Leave(reply));
        answer.await.unwrap_or(Ok(Release::Gone))
    }

    async fn close(&self) -> Result<()> {
        self.0.servers.close().await;
        Ok(())
    }
}

/// Proves that a session at the server is alive. Claims of one that is over know it by themselves.
async fn alive<S: Server>(server: &S, step: Step) -> Result<()> {
    match server.prove().await {
        Ok(()) | Err(Fail::Over(_)) => Ok(()),
        Err(refused) => Err(refused.error::<S>(step).perhaps()),
    }
}
