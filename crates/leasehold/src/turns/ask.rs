//! What a task asks of its local line.

use std::panic::Location;
use std::time::Duration;

use super::owner::Who;
use super::terms::{Reentrant, Terms};
use crate::claim::Mode;
use crate::clock::Micros;
use crate::session::Confirmed;

/// One task's request, as the local line sees it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) mode: Mode,
    pub(crate) waits: bool,
    pub(crate) terms: Terms,
    pub(crate) who: Who,
    pub(crate) place: &'static Location<'static>,
    /// When it was asked.
    pub(super) since: Micros,
    /// What the engine says of its claim.
    pub(super) confirmed: Confirmed,
}

impl Ask {
    pub(crate) fn new(
        mode: Mode,
        waits: bool,
        terms: &Terms,
        place: &'static Location<'static>,
        since: Micros,
    ) -> Self {
        let who = match &terms.reentrant {
            Reentrant::Owner(owner) => owner.into(),
            _ => Who::runs(),
        };
        Self {
            mode,
            waits,
            terms: terms.clone(),
            who,
            place,
            since,
            confirmed: Confirmed::default(),
        }
    }

    pub(super) fn is_reentrant(&self) -> bool {
        self.terms.reentrant != Reentrant::No
    }

    /// How long to keep its grant afterwards; not at all what no other request could use.
    pub(super) fn linger(&self) -> Duration {
        let reusable = self.mode.exclusive() || self.mode == Mode::Read;
        match reusable && self.terms.keep_alive && !self.terms.strict {
            true => self.terms.linger,
            false => Duration::ZERO,
        }
    }
}
