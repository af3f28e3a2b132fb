//! One claim, as its task and the calls that ask for it know it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};

use super::place::Place;
use super::seat::Fail;
use super::session::Core;
use crate::claim::Claim;
use crate::engine::{Ended, Event, Release, Standing};
use crate::error::{Error, ErrorKind, Result};

/// What a claim's calls see of it.
#[derive(Debug, Clone)]
pub(super) enum Status {
    Asking,
    Is(Standing),
    /// Refused; nothing of it is left.
    Refused(ErrorKind, String),
}

/// What a claim's calls ask of its task.
#[derive(Debug)]
pub(super) enum Command {
    /// Answer once everything that was told before this has been taken in.
    Settle(oneshot::Sender<()>),
    Leave(oneshot::Sender<Result<Release>>),
    Downgrade(oneshot::Sender<Result<Standing>>),
}

/// One claim, as its task and its session know it.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) claim: Claim,
    pub(super) status: watch::Sender<Status>,
    /// When the session last spoke of it.
    pub(super) said: AtomicU64,
    /// How long the server keeps it after that, once it is known.
    pub(super) kept: OnceLock<Duration>,
}

/// How a claim's task ended.
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

/// Lives as long as the claim.
pub(super) async fn live(ticket: Arc<Ticket>, commands: mpsc::UnboundedReceiver<Command>) {
    let end = match Place::join(&ticket).await {
        Ok(Some(place)) => match place.keep(commands).await {
            // It was told that it stands in line; now it must be told that it does not.
            Err(Fail::Refused(error)) => End::Ended(Ended::Down(error.to_string())),
            Err(fail) => fail.into(),
            Ok(end) => end,
        },
        Ok(None) => End::Busy,
        Err(fail) => fail.into(),
    };
    ticket.core.forget(ticket.claim.id);
    let (status, told) = match end {
        End::Left => (Status::Is(Standing::Gone), None),
        End::Busy => (Status::Is(Standing::Busy), None),
        End::Refused(error) => (
            Status::Refused(error.kind(), error.message().to_owned()),
            None,
        ),
        End::Ended(why) => (Status::Is(Standing::Gone), Some(why)),
    };
    let _ = ticket.status.send_replace(status);
    if let Some(why) = told {
        ticket
            .core
            .inbox
            .deliver(Event::Ended(ticket.claim.id, why));
    }
}
