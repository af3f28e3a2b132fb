//! The two layouts behind one face.

use std::sync::Arc;

use super::ground::Ground;
use super::link::Link;
use super::node::{EVICTED, encode};
use super::note::Note;
use super::permits::Permits;
use super::seat::{Fail, Seat, Stand};
use super::session::Core;
use super::trace::Trace;
use super::wire::{Trouble, Watch};
use crate::claim::Claim;
use crate::engine::{Ended, Mode};
use crate::name::Name;

pub(super) enum Layout {
    Seat(Seat),
    Permits(Permits),
}

macro_rules! each {
    ($layout:expr, $seat:ident => $do:expr) => {
        match $layout {
            Layout::Seat($seat) => $do,
            Layout::Permits($seat) => $do,
        }
    };
}

impl Layout {
    pub(super) fn new(link: Arc<Link>, core: &Core, claim: &Claim) -> Self {
        let note = Note {
            weight: claim.mode.weight(),
            capacity: claim.mode.capacity(),
            lease: link.wire.timeout(),
            czxid: 0,
            who: core.who.clone(),
        };
        match claim.mode {
            Mode::Permits { .. } => {
                Self::Permits(Permits::new(link, core.base(&claim.name), claim.id, note))
            }
            _ => {
                let ground = link.grounds.take(&claim.name);
                let ground = ground.unwrap_or_else(|| Ground::new(core.base(&claim.name)));
                Self::Seat(Seat::new(link, ground, claim, note))
            }
        }
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        each!(self, seat => &seat.link)
    }

    pub(super) fn czxid(&self) -> i64 {
        each!(self, seat => seat.czxid())
    }

    pub(super) async fn join(&mut self) -> Result<Stand, Fail> {
        match self {
            Self::Seat(seat) => seat.join().await,
            // In a box: it would make every claim's future larger than what is allocated quickly.
            Self::Permits(permits) => Box::pin(permits.join()).await,
        }
    }

    pub(super) async fn look(&mut self) -> Result<Stand, Fail> {
        each!(self, seat => seat.look().await)
    }

    pub(super) async fn wanted(&mut self) -> Result<Option<bool>, Fail> {
        each!(self, seat => seat.wanted().await)
    }

    pub(super) async fn leave(&mut self) -> Result<bool, Fail> {
        each!(self, seat => seat.leave().await)
    }

    pub(super) async fn downgrade(&mut self) -> Result<bool, Fail> {
        match self {
            Self::Seat(seat) => seat.downgrade().await,
            Self::Permits(_) => Ok(true),
        }
    }

    /// Fires when somebody joins behind; permits are not told that, they look.
    pub(super) fn behind(&mut self) -> Option<&mut Watch> {
        match self {
            Self::Seat(seat) => seat.behind.as_mut(),
            Self::Permits(_) => None,
        }
    }

    /// Whether nothing would tell of somebody who joins behind.
    pub(super) const fn is_deaf(&self) -> bool {
        matches!(self, Self::Seat(seat) if seat.behind.is_none())
    }

    pub(super) const fn counts_permits(&self) -> bool {
        matches!(self, Self::Permits(_))
    }

    /// The data of its own node and a watch on it; none if it is not there.
    pub(super) async fn read_own(&mut self) -> Result<Option<(Vec<u8>, Watch)>, Fail> {
        let Some(path) = each!(&*self, seat => seat.path()) else {
            return Ok(None);
        };
        let read = self.link().again(|| self.link().wire.read_watched(&path));
        match read.await {
            Ok(read) => Ok(Some(read)),
            Err(Trouble::NoNode) => Ok(None),
            Err(trouble) => Err(trouble.into()),
        }
    }

    /// Writes what its own node says of it; false if the node is not there.
    pub(super) async fn write_note(&mut self) -> Result<bool, Fail> {
        let Some(path) = each!(&*self, seat => seat.path()) else {
            return Ok(false);
        };
        let data = each!(&*self, seat => seat.note.write());
        let written = self.link().again(|| self.link().wire.write(&path, &data));
        match written.await {
            Ok(()) => Ok(true),
            Err(Trouble::NoNode) => Ok(false),
            Err(trouble) => Err(trouble.into()),
        }
    }

    /// What was written down about the eviction of this claim.
    pub(super) async fn trace(&self, core: &Core, name: &Name) -> Option<Ended> {
        let path = format!("{}/{EVICTED}/{}", core.root(), encode(name));
        let read = self.link().again(|| self.link().wire.read(&path));
        let (data, _) = read.await.ok()?;
        Trace::read(&data)?.of(self.czxid())
    }
}
