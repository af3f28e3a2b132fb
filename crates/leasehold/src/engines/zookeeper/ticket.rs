//! One claim, as whoever takes care of it and the calls that ask for it know it.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};

use super::link::Link;
use super::place::Place;
use super::rest::Step;
use super::seat::Fail;
use super::session::Core;
use crate::claim::Claim;
use crate::engine::{Ended, Event, Release, Standing};
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Shared;

/// What a claim's calls see of it.
#[derive(Debug, Clone, Default)]
pub(super) enum Status {
    #[default]
    Asking,
    Is(Standing),
    /// Refused; nothing of it is left.
    Refused(ErrorKind, String),
}

/// Where a claim's status is written and read.
#[derive(Debug, Default)]
pub(super) struct Board {
    status: Shared<Status>,
    changed: Notify,
}

impl Board {
    pub(super) fn set(&self, status: Status) {
        *self.status.lock() = status;
        self.changed.notify_waiters();
    }

    pub(super) fn now(&self) -> Status {
        self.status.lock().clone()
    }

    /// What was found out, once it was.
    pub(super) async fn known(&self) -> Status {
        let mut known = self.now();
        while matches!(known, Status::Asking) {
            let mut changed = pin!(self.changed.notified());
            // Before another look, so that no change is missed after it.
            let _ = changed.as_mut().enable();
            known = self.now();
            if matches!(known, Status::Asking) {
                changed.await;
            }
        }
        known
    }
}

/// What a claim's calls ask of its task.
#[derive(Debug)]
pub(super) enum Command {
    /// Answer once everything that was told before this has been taken in.
    Settle(oneshot::Sender<()>),
    Leave(oneshot::Sender<Result<Release>>),
    Downgrade(oneshot::Sender<Result<Standing>>),
}

/// Who takes care of a claim.
pub(super) enum Stage {
    /// Whoever joins or leaves with it; what is asked meanwhile waits.
    InHand(Vec<Command>),
    /// Nobody, for a while: it holds, and most are released before anything else is asked of them.
    Resting(Box<Place>),
    /// A task of its own.
    Kept(mpsc::UnboundedSender<Command>),
    Over,
}

/// One claim, as its session knows it.
pub(super) struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) claim: Claim,
    pub(super) board: Board,
    pub(super) stage: Shared<Stage>,
    pub(super) step: Step,
    /// When the session last spoke of it.
    pub(super) said: AtomicU64,
    /// How long the server keeps it after that, once it is known.
    pub(super) kept: OnceLock<Duration>,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({:?})", self.claim)
    }
}

/// How a claim ended.
pub(super) enum End {
    Left,
    Busy,
    Refused(Error),
    Ended(Ended),
}

impl From<Fail> for End {
    fn from(fail: Fail) -> Self {
        match fail {
            Fail::Refused(error) => Self::Refused(error),
            Fail::Dead(why) => {
                tracing::debug!(why, "the ZooKeeper session is over");
                Self::Ended(Ended::Expired)
            }
        }
    }
}

/// Takes the claim into its line. Then it rests, or a task keeps it.
pub(super) async fn join(ticket: Arc<Ticket>, link: Option<Arc<Link>>) {
    match Place::join(&ticket, link).await {
        Ok(Some(place)) => ticket.lay_down(place),
        Ok(None) => ticket.end(End::Busy),
        Err(fail) => ticket.end(fail.into()),
    }
}

/// Takes the claim out of its line.
pub(super) async fn leave(
    ticket: Arc<Ticket>,
    mut place: Box<Place>,
    reply: oneshot::Sender<Result<Release>>,
) {
    let left = place.leave().await;
    ticket.end(End::Left);
    let _ = reply.send(left);
}

/// Keeps the claim until it leaves or ends.
async fn keep(ticket: Arc<Ticket>, place: Box<Place>, commands: mpsc::UnboundedReceiver<Command>) {
    ticket.end(match place.keep(commands).await {
        // It was told that it stands in line; now it must be told that it does not.
        Err(Fail::Refused(error)) => End::Ended(Ended::Down(error.to_string())),
        Err(fail) => fail.into(),
        Ok(end) => end,
    });
}

impl Ticket {
    /// Asks whoever takes care of it. If nobody does any more, what was asked is dropped.
    pub(super) fn send(self: &Arc<Self>, command: Command) {
        loop {
            self.wake();
            match &mut *self.stage.lock() {
                Stage::InHand(commands) => return commands.push(command),
                Stage::Kept(commands) => return drop(commands.send(command)),
                // It was laid down just now.
                Stage::Resting(_) => {}
                Stage::Over => return,
            }
        }
    }

    /// Whether nobody may ever look at it again: it rests, or whoever took it in hand does nothing.
    pub(super) fn is_unattended(&self) -> bool {
        self.step.is_open() || matches!(&*self.stage.lock(), Stage::Resting(_))
    }

    /// Takes it in hand, if it rests.
    pub(super) fn pick_up(&self) -> Option<Box<Place>> {
        let mut stage = self.stage.lock();
        if !matches!(&*stage, Stage::Resting(_)) {
            return None;
        }
        match std::mem::replace(&mut *stage, Stage::InHand(Vec::new())) {
            Stage::Resting(place) => Some(place),
            _ => None,
        }
    }

    /// From now on a task takes care of it.
    pub(super) fn wake(self: &Arc<Self>) {
        self.step.hand_over(&self.core);
        if let Some(place) = self.pick_up() {
            self.hand_to_a_task(&mut self.stage.lock(), place);
        }
    }

    /// It is in its line.
    fn lay_down(self: &Arc<Self>, place: Place) {
        let place = Box::new(place);
        let mut stage = self.stage.lock();
        let asked = matches!(&*stage, Stage::InHand(commands) if !commands.is_empty());
        // Whoever watches over an open step watches over the rest after it too.
        match place.may_rest() && !asked && self.step.is_open() {
            true => *stage = Stage::Resting(place),
            false => self.hand_to_a_task(&mut stage, place),
        }
    }

    fn hand_to_a_task(self: &Arc<Self>, stage: &mut Stage, place: Box<Place>) {
        let (commands, inbox) = mpsc::unbounded_channel();
        if let Stage::InHand(asked) = std::mem::replace(stage, Stage::Kept(commands.clone())) {
            asked
                .into_iter()
                .for_each(|command| drop(commands.send(command)));
        }
        drop(self.core.spawn(keep(self.clone(), place, inbox)));
    }

    /// Nothing of it is left.
    fn end(&self, end: End) {
        self.core.forget(self.claim.id);
        let stage = std::mem::replace(&mut *self.stage.lock(), Stage::Over);
        let (status, told) = match end {
            End::Left => (Status::Is(Standing::Gone), None),
            End::Busy => (Status::Is(Standing::Busy), None),
            End::Refused(error) => (
                Status::Refused(error.kind(), error.message().to_owned()),
                None,
            ),
            End::Ended(why) => (Status::Is(Standing::Gone), Some(why)),
        };
        self.board.set(status);
        // Whoever asked something meanwhile finds it gone.
        drop(stage);
        if let Some(why) = told {
            self.core.inbox.deliver(Event::Ended(self.claim.id, why));
        }
    }
}
