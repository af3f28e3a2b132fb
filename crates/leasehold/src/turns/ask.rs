//! What a task asks of its local line.

use std::panic::Location;
use std::time::Duration;

use super::owner::Who;
use super::terms::{Reentrant, Terms};
use crate::claim::Mode;

/// One task's request, as the local line sees it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) mode: Mode,
    pub(crate) waits: bool,
    pub(crate) lease: Duration,
    pub(crate) keep_alive: bool,
    pub(crate) min_hold: Duration,
    pub(crate) linger: Duration,
    pub(crate) strict: bool,
    pub(crate) reentrant: bool,
    pub(crate) who: Who,
    pub(crate) place: &'static Location<'static>,
}

impl Ask {
    pub(crate) fn new(
        mode: Mode,
        waits: bool,
        terms: &Terms,
        place: &'static Location<'static>,
    ) -> Self {
        let who = match &terms.reentrant {
            Reentrant::Owner(owner) => owner.into(),
            _ => Who::runs(),
        };
        Self {
            mode,
            waits,
            lease: terms.lease,
            keep_alive: terms.keep_alive,
            min_hold: terms.min_hold,
            linger: terms.linger,
            strict: terms.strict,
            reentrant: terms.reentrant != Reentrant::No,
            who,
            place,
        }
    }
}
