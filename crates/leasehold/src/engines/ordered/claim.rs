//! The life of one claim, from joining the line to its end: one task.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::place::{Found, Own, Place};
use super::session::{Command, Core, Ticket};
use super::{Deployment, Fail, Server, Watch};
use crate::clock::{Micros, micros};
use crate::engine::{Ended, Event, FENCE_BLOCK, Held, Release, Standing};
use crate::error::{Result, Step};

/// When the holder of a lock that another claim waits for begins to watch its own node. From then on it is told of an
/// eviction at once; locks that are released sooner save the request. A holder without waiters is told by the watch on
/// the line.
const SOON: Duration = Duration::from_millis(10);

/// How a claim ended.
enum End {
    Left(oneshot::Sender<Result<Release>>, Result<bool, Fail>),
    Busy,
    /// Refused before it was told where it stands.
    Failed(Fail),
    /// Ended without its session asking.
    Ended(Ended),
}

impl From<Fail> for End {
    fn from(fail: Fail) -> Self {
        match fail {
            Fail::Over(why) => {
                tracing::debug!(why, "the session at the server is over");
                Self::Ended(Ended::Expired)
            }
            refused @ Fail::Refused(..) => Self::Failed(refused),
        }
    }
}

/// The task of a claim.
pub(super) async fn live<D: Deployment>(
    core: Arc<Core<D>>,
    ticket: Arc<Ticket<D::Server>>,
    mut commands: mpsc::UnboundedReceiver<Command>,
) {
    let (mut place, mut early) = (None, Vec::new());
    let joined = join(&core, &ticket, &mut place, &mut commands, &mut early).await;
    let end = match (&mut place, joined) {
        (Some(place), Ok(found)) => {
            let mut life = Life::new(&core, &ticket, place);
            life.keep(found, &mut commands, &mut early).await
        }
        (None, Ok(_)) => End::Busy,
        (_, Err(end)) => end,
    };
    // From here on the session does not know the claim: an answer that it has left is true.
    core.forget(ticket.claim.id);
    commands.close();
    while let Ok(command) = commands.try_recv() {
        early.push(command);
    }
    let last = match end {
        End::Left(reply, left) => {
            let _ = reply.send(match left {
                Ok(true) => Ok(Release::Released),
                Ok(false) | Err(Fail::Over(_)) => Ok(Release::Gone),
                Err(refused) => Err(refused.error::<D::Server>(Step::Release)),
            });
            Ok(Standing::Gone)
        }
        End::Busy => Ok(Standing::Busy),
        End::Failed(fail) => Err(fail),
        End::Ended(why) => {
            core.inbox.deliver(Event::Ended(ticket.claim.id, why));
            Ok(Standing::Gone)
        }
    };
    early.into_iter().for_each(|command| command.answer(&last));
    if let Some(mut place) = place {
        place.leave_at_last().await;
    }
}

/// Joins the line, unless the caller leaves or falls silent meanwhile. Other commands wait in `early`.
async fn join<D: Deployment>(
    core: &Core<D>,
    ticket: &Ticket<D::Server>,
    joined: &mut Option<Place<D::Server>>,
    commands: &mut mpsc::UnboundedReceiver<Command>,
    early: &mut Vec<Command>,
) -> Result<Found, End> {
    let joining = async {
        let server = core.servers.open(ticket.claim.lease).await?;
        let server = ticket.server.get_or_init(|| server).clone();
        let place = joined.insert(Place::new(server, &ticket.claim, &core.who));
        place.join().await
    };
    let gives_up = async {
        loop {
            match commands.recv().await {
                Some(Command::Leave(reply)) => return Some(reply),
                Some(command) => early.push(command),
                None => return None,
            }
        }
    };
    let found = tokio::select! {
        found = joining => found,
        reply = gives_up => {
            let left = leave(joined).await;
            return Err(match reply {
                Some(reply) => End::Left(reply, left),
                None => End::Ended(Ended::Expired),
            });
        }
        () = core.clock.sleep_until(ticket.silent_until()) => {
            let _ = leave(joined).await;
            return Err(End::Ended(Ended::Expired));
        }
    };
    match found {
        Ok(found) => Ok(found),
        Err(fail) => {
            // A claim that is refused is not in the line.
            let _ = leave(joined).await;
            Err(fail.into())
        }
    }
}

async fn leave<S: Server>(joined: &mut Option<Place<S>>) -> Result<bool, Fail> {
    match joined {
        Some(place) => place.leave().await,
        None => Ok(false),
    }
}

/// A claim in its line.
struct Life<'a, D: Deployment> {
    core: &'a Core<D>,
    ticket: &'a Ticket<D::Server>,
    place: &'a mut Place<D::Server>,
    /// The change of what keeps the claim from holding.
    ahead: Option<Watch>,
    /// The next change of the line.
    behind: Option<Watch>,
    /// The end of a waiter's own node; the next change of a holder's, once it has held for a while.
    own: Option<Watch>,
    standing: Standing,
    /// When to look at a holder's node, and at the claims behind it.
    look_at: Micros,
}

impl<'a, D: Deployment> Life<'a, D> {
    fn new(
        core: &'a Core<D>,
        ticket: &'a Ticket<D::Server>,
        place: &'a mut Place<D::Server>,
    ) -> Self {
        Self {
            core,
            ticket,
            place,
            ahead: None,
            behind: None,
            own: None,
            standing: Standing::Gone,
            look_at: Micros::MAX,
        }
    }

    /// Keeps the claim until it ends.
    async fn keep(
        &mut self,
        found: Found,
        commands: &mut mpsc::UnboundedReceiver<Command>,
        early: &mut Vec<Command>,
    ) -> End {
        if !self.ticket.claim.waits && matches!(found, Found::Waits { .. } | Found::Busy) {
            return match self.place.leave().await {
                Ok(_) => End::Busy,
                Err(fail) => fail.into(),
            };
        }
        match self.take(found, false).await {
            Ok(None) => {}
            Ok(Some(end)) => return end,
            Err(fail) => return self.refused(fail).await.into(),
        }
        let standing = self.standing;
        early
            .drain(..)
            .for_each(|command| command.answer(&Ok(standing)));
        loop {
            match self.step(commands).await {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                // The claim was told that it stands in line, so it is told that it does not any more.
                Err(fail) => match self.refused(fail).await.into() {
                    End::Failed(fail) => {
                        let why = fail.error::<D::Server>(Step::Wait).to_string();
                        return End::Ended(Ended::Down(why));
                    }
                    end => return end,
                },
            }
        }
    }

    /// Waits for whatever comes next, and acts on it.
    async fn step(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Result<Option<End>, Fail> {
        let over = self.place.server.over().clone();
        let wake = self.ticket.silent_until().min(self.look_at);
        let (held, wanted) = match self.standing {
            Standing::Held(held) => (true, held.wanted),
            _ => (false, false),
        };
        tokio::select! {
            // Watches first: a command that follows an event finds the event taken in.
            biased;
            () = fired(&mut self.ahead), if !held => self.look_again().await,
            () = fired(&mut self.own) => match held {
                true => self.look_at_own().await,
                false => self.look_again().await,
            },
            () = fired(&mut self.behind), if held && !wanted => self.look_behind().await,
            command = commands.recv() => self.obey(command).await,
            () = over.cancelled() => Ok(Some(End::Ended(Ended::Expired))),
            () = self.core.clock.sleep_until(wake) => self.on_time().await,
        }
    }

    /// Looks where a waiter stands now.
    async fn look_again(&mut self) -> Result<Option<End>, Fail> {
        (self.ahead, self.own) = (None, None);
        let found = self.place.look().await?;
        self.take(found, true).await
    }

    /// Takes in where the claim stands now.
    async fn take(&mut self, found: Found, tell: bool) -> Result<Option<End>, Fail> {
        let (id, lease) = (self.ticket.claim.id, self.ticket.claim.lease);
        match found {
            Found::Gone => return Ok(Some(End::Ended(self.place.why_gone().await))),
            Found::Busy => return Ok(Some(End::Busy)),
            Found::Waits {
                ahead,
                watch,
                behind,
            } => {
                (self.ahead, self.behind) = (Some(watch), behind);
                self.own = self.place.watch_own();
                let look_again = lease;
                self.standing = Standing::Waiting { ahead, look_again };
            }
            Found::Held { wanted, behind } => {
                // A request to give the lock up may have come while the claim waited: its node is read soon.
                (self.own, self.behind) = (None, behind);
                let floor = self.place.server.fence_floor();
                let held = Held {
                    fence: floor.fence(self.place.number)?,
                    block: FENCE_BLOCK,
                    wanted,
                };
                self.standing = Standing::Held(held);
                self.look_in(if wanted { SOON } else { lease / 3 });
                if tell {
                    self.core.inbox.deliver(Event::Granted(id, held));
                }
            }
        }
        Ok(None)
    }

    async fn obey(&mut self, command: Option<Command>) -> Result<Option<End>, Fail> {
        if self.place.server.over().is_cancelled() {
            command
                .into_iter()
                .for_each(|command| command.answer(&Ok(Standing::Gone)));
            return Ok(Some(End::Ended(Ended::Expired)));
        }
        match command {
            Some(Command::Stand(tell)) => tell(Ok(self.standing)),
            Some(Command::Downgrade(tell)) => tell(self.downgrade().await),
            Some(Command::Leave(reply)) => {
                let left = self.place.leave().await;
                return Ok(Some(End::Left(reply, left)));
            }
            None => {}
        }
        Ok(None)
    }

    async fn downgrade(&mut self) -> Result<Standing, Fail> {
        let there = match self.place.downgrade().await {
            Err(Fail::Over(_)) => false,
            there => there?,
        };
        // The watch was on the writer's node.
        self.own = None;
        self.look_in(SOON);
        Ok(if there { self.standing } else { Standing::Gone })
    }

    /// A holder's own node: deleted, or written to.
    async fn look_at_own(&mut self) -> Result<Option<End>, Fail> {
        self.own = None;
        match self.place.read_own().await? {
            Own::Gone => Ok(Some(End::Ended(self.place.why_gone().await))),
            Own::There { asked, watch } => {
                self.own = Some(watch);
                if asked {
                    let id = self.ticket.claim.id;
                    self.core.inbox.deliver(Event::Asked(id));
                }
                Ok(None)
            }
        }
    }

    /// The line behind a holder changed, or its own node was deleted.
    async fn look_behind(&mut self) -> Result<Option<End>, Fail> {
        let Some((wanted, behind)) = self.place.behind().await? else {
            return Ok(Some(End::Ended(self.place.why_gone().await)));
        };
        self.behind = behind;
        if let Standing::Held(held) = &mut self.standing {
            let news = wanted && !held.wanted;
            held.wanted = wanted;
            if news {
                let id = self.ticket.claim.id;
                self.core.inbox.deliver(Event::Wanted(id));
                self.look_in(SOON);
            }
        }
        Ok(None)
    }

    fn look_in(&mut self, soon: Duration) {
        self.look_at = self.core.clock.now() + micros(soon);
    }

    async fn on_time(&mut self) -> Result<Option<End>, Fail> {
        let now = self.core.clock.now();
        if self.ticket.silent_until() <= now {
            let _ = self.place.leave().await?;
            return Ok(Some(End::Ended(Ended::Expired)));
        }
        let Standing::Held(held) = self.standing else {
            return Ok(None);
        };
        if self.look_at > now {
            return Ok(None);
        }
        self.look_in(self.ticket.claim.lease / 3);
        if self.own.is_none() {
            let end = self.look_at_own().await?;
            if end.is_some() || held.wanted {
                return Ok(end);
            }
        }
        // The watch on the line is not waited for while a claim waits, and there is none on a line of permits.
        match held.wanted || self.behind.is_none() {
            true => self.look_behind().await,
            false => Ok(None),
        }
    }

    /// Leaves the line after a refusal.
    async fn refused(&mut self, fail: Fail) -> Fail {
        if matches!(fail, Fail::Refused(..)) {
            let _ = self.place.leave().await;
        }
        fail
    }
}

async fn fired(watch: &mut Option<Watch>) {
    match watch {
        Some(watch) => watch.await,
        None => std::future::pending().await,
    }
}
