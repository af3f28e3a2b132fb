//! A claim in its line: it joins, watches, tells, and leaves, whatever becomes of the calls that asked for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;

use super::layout::Layout;
use super::link::Link;
use super::node::REVOKE;
use super::rest::DEAF;
use super::seat::{Fail, Stand};
use super::ticket::{Command, End, Status, Ticket};
use super::wire::{Seen, Watch};
use crate::clock::{Micros, micros};
use crate::engine::{Ended, Event, FENCE_BLOCK, Held, Release, Standing};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::fence::Fence;

/// A claim that is in its line.
pub(super) struct Place {
    ticket: Arc<Ticket>,
    layout: Layout,
    /// What keeps it from holding.
    ahead: Option<(Watch, bool)>,
    /// Its own node, once it has held for a while.
    own: Option<Watch>,
    held: Option<Held>,
    /// When to look at a held claim's node and at who is behind.
    look_at: Micros,
}

impl Place {
    /// Joins the line; none if it is a try that found no room.
    pub(super) async fn join(
        ticket: &Arc<Ticket>,
        link: Option<Arc<Link>>,
    ) -> Result<Option<Self>, Fail> {
        let (core, claim) = (&ticket.core, &ticket.claim);
        let link = match link {
            Some(link) => link,
            None => core.link(claim.lease).await.map_err(Fail::Refused)?,
        };
        let _ = ticket.kept.set(link.wire.timeout());
        let mut layout = Layout::new(link, core, claim);
        let stand = match layout.join().await {
            // Who is refused is not in the line.
            Err(Fail::Refused(error)) => {
                let _ = layout.leave().await;
                return Err(Fail::Refused(error));
            }
            joined => joined?,
        };
        if !claim.waits && matches!(stand, Stand::Wait { .. }) {
            let _ = layout.leave().await?;
            return Ok(None);
        }
        let mut place = Self {
            ticket: ticket.clone(),
            layout,
            ahead: None,
            own: None,
            held: None,
            look_at: Micros::MAX,
        };
        match place.stands(stand, false)? {
            None => Ok(Some(place)),
            Some(why) => Err(Fail::Dead(why.to_string())),
        }
    }

    /// Until the claim leaves or ends.
    pub(super) async fn keep(
        mut self: Box<Self>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<End, Fail> {
        let end = self.until_the_end(commands).await;
        if let Err(Fail::Refused(_)) = end {
            let _ = self.layout.leave().await;
        }
        end
    }

    async fn until_the_end(
        &mut self,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<End, Fail> {
        let over = self.layout.link().over.clone();
        loop {
            let (clock, wake) = (self.ticket.core.clock().clone(), self.wake());
            let unwanted = self.is_unwanted();
            tokio::select! {
                // What was told first is taken in first: see `Settle`.
                biased;
                seen = fired(self.ahead.as_mut().map(|(watch, _)| watch)) => {
                    if let Some(why) = self.ahead_changed(seen).await? {
                        return Ok(End::Ended(why));
                    }
                }
                _ = fired(self.own.as_mut()), if self.held.is_some() => {
                    if let Some(why) = self.look_at_own().await? {
                        return Ok(End::Ended(why));
                    }
                }
                _ = fired(self.layout.behind()), if unwanted => {
                    if let Some(why) = self.look_behind().await? {
                        return Ok(End::Ended(why));
                    }
                }
                command = commands.recv() => match command {
                    _ if over.is_cancelled() => return Ok(End::Ended(Ended::Expired)),
                    Some(Command::Settle(reply)) => drop(reply.send(())),
                    Some(Command::Downgrade(reply)) => drop(reply.send(self.downgrade().await)),
                    Some(Command::Leave(reply)) => {
                        let left = self.leave().await;
                        // Nobody shall find the claim here once its release is told.
                        self.ticket.core.forget(self.ticket.claim.id);
                        let _ = reply.send(left);
                        return Ok(End::Left);
                    }
                    None => {
                        let _ = self.layout.leave().await?;
                        return Ok(End::Left);
                    }
                },
                () = over.cancelled() => return Ok(End::Ended(Ended::Expired)),
                () = clock.sleep_until(wake) => {
                    if let Some(end) = self.on_time().await? {
                        return Ok(end);
                    }
                }
            }
        }
    }

    /// Takes in where the claim stands now; says why it ended, if it did.
    fn stands(&mut self, stand: Stand, tell: bool) -> Result<Option<Ended>, Fail> {
        let standing = match stand {
            Stand::Gone => return Ok(Some(Ended::Forgotten)),
            Stand::Wait { ahead, watch, next } => {
                self.ahead = Some((watch, next));
                let look_again = self.ticket.claim.lease;
                Standing::Waiting { ahead, look_again }
            }
            Stand::Held { wanted } => {
                self.ahead = None;
                let fence = fence(self.layout.czxid()).map_err(Fail::Refused)?;
                let block = FENCE_BLOCK;
                let held = Held {
                    fence,
                    block,
                    wanted,
                };
                self.held = Some(held);
                let look_in = match self.layout.is_deaf() {
                    true => DEAF,
                    false => self.ticket.claim.lease / 3,
                };
                self.look_at = self.ticket.core.clock().now() + micros(look_in);
                Standing::Held(held)
            }
        };
        self.set(standing);
        if let (true, Standing::Held(held)) = (tell, standing) {
            let granted = Event::Granted(self.ticket.claim.id, held);
            self.ticket.core.inbox.deliver(granted);
        }
        Ok(None)
    }

    async fn ahead_changed(&mut self, seen: Seen) -> Result<Option<Ended>, Fail> {
        let next = self.ahead.take().is_some_and(|(_, next)| next);
        let stand = match (next, seen) {
            // Nobody is before us now, if we are there ourselves. Whether somebody is behind is seen later; who had
            // to wait is seldom alone.
            (true, Seen::Deleted) => match self.watch_own().await? {
                true => Stand::Held { wanted: true },
                false => Stand::Gone,
            },
            _ => self.layout.look().await?,
        };
        self.stands(stand, true)
    }

    /// Somebody joined, or left, or took our node away.
    async fn look_behind(&mut self) -> Result<Option<Ended>, Fail> {
        match self.layout.wanted().await? {
            None => Ok(Some(self.why_gone().await)),
            Some(wanted) => {
                self.want(wanted);
                Ok(None)
            }
        }
    }

    /// Our own node changed: taken away, or we are asked to give it up.
    async fn look_at_own(&mut self) -> Result<Option<Ended>, Fail> {
        self.own = None;
        match self.watch_own().await? {
            true => Ok(None),
            false => Ok(Some(self.why_gone().await)),
        }
    }

    /// Whether our node is there. Watches it from now on, and tells if it says that we should give it up.
    async fn watch_own(&mut self) -> Result<bool, Fail> {
        let Some((data, watch)) = self.layout.read_own().await? else {
            return Ok(false);
        };
        self.own = Some(watch);
        if data == REVOKE {
            let Ticket { core, claim, .. } = &*self.ticket;
            core.inbox.deliver(Event::Asked(claim.id));
            // Who we are stays to be seen, and who asks again is heard again.
            return self.layout.write_note().await;
        }
        Ok(true)
    }

    fn want(&mut self, wanted: bool) {
        let Some(held) = &mut self.held else { return };
        let news = wanted && !held.wanted;
        held.wanted = wanted;
        let held = *held;
        self.set(Standing::Held(held));
        if news {
            self.ticket
                .core
                .inbox
                .deliver(Event::Wanted(self.ticket.claim.id));
        }
    }

    async fn on_time(&mut self) -> Result<Option<End>, Fail> {
        let now = self.ticket.core.clock().now();
        if self.silent_until() <= now {
            let _ = self.layout.leave().await?;
            return Ok(Some(End::Ended(Ended::Expired)));
        }
        if self.look_at > now || self.held.is_none() {
            return Ok(None);
        }
        let lease = micros(self.ticket.claim.lease);
        if self.layout.is_deaf() {
            self.look_at = now + lease / 3;
            return Ok(self.look_behind().await?.map(End::Ended));
        }
        let wanted = self.held.is_some_and(|held| held.wanted);
        // Only while somebody waits must we ask whether somebody still does.
        self.look_at = if wanted { now + lease } else { Micros::MAX };
        if self.own.is_none() && !self.watch_own().await? {
            return Ok(Some(End::Ended(self.why_gone().await)));
        }
        if wanted || self.layout.counts_permits() {
            self.look_at = now + lease;
            return Ok(self.look_behind().await?.map(End::Ended));
        }
        Ok(None)
    }

    async fn downgrade(&mut self) -> Result<Standing> {
        let ours = match self.layout.downgrade().await {
            Ok(ours) => ours,
            Err(Fail::Refused(error)) => return Err(error),
            Err(Fail::Dead(_)) => false,
        };
        // The watch was on the node that is gone.
        self.own = None;
        match self.held {
            Some(held) if ours => Ok(Standing::Held(held)),
            _ => Ok(Standing::Gone),
        }
    }

    pub(super) async fn leave(&mut self) -> Result<Release> {
        match self.layout.leave().await {
            Ok(true) => Ok(Release::Released),
            Ok(false) | Err(Fail::Dead(_)) => Ok(Release::Gone),
            Err(Fail::Refused(error)) => Err(error),
        }
    }

    /// Whether it can do without news for a while.
    pub(super) const fn may_rest(&self) -> bool {
        self.held.is_some() && self.layout.is_deaf()
    }

    /// Who took our node away, as far as it was written down.
    async fn why_gone(&self) -> Ended {
        let traced = self
            .layout
            .trace(&self.ticket.core, &self.ticket.claim.name);
        traced.await.unwrap_or(Ended::Forgotten)
    }

    fn is_unwanted(&self) -> bool {
        self.held.is_some_and(|held| !held.wanted)
    }

    fn silent_until(&self) -> Micros {
        let said = self.ticket.said.load(Ordering::Acquire);
        said.saturating_add(micros(self.ticket.claim.lease))
    }

    fn wake(&self) -> Micros {
        self.silent_until().min(self.look_at)
    }

    fn set(&self, standing: Standing) {
        self.ticket.board.set(Status::Is(standing));
    }
}

async fn fired(watch: Option<&mut Watch>) -> Seen {
    match watch {
        Some(watch) => watch.await,
        None => std::future::pending().await,
    }
}

/// The first of the fences that come from a node's number.
pub(super) fn fence(czxid: i64) -> Result<Fence> {
    let first = czxid.checked_mul(i64::from(FENCE_BLOCK));
    match first.and_then(|first| u64::try_from(first).ok()) {
        Some(first) => Ok(Fence::new(first)),
        None => {
            let what = format!("no fence is left below 2^63: the server counts {czxid} changes");
            Err(Error::new(ErrorKind::Unavailable, Step::Claim, what).on("zookeeper"))
        }
    }
}
