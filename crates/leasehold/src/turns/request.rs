//! A task's request to its queue.

use std::panic::Location;
use std::time::Duration;

use super::owner::Who;
use super::terms::{Reentrant, Terms};
use crate::claim::Mode;
use crate::clock::Micros;
use crate::session::Confirmed;

/// One task's request, as the queue sees it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) mode: Mode,
    pub(crate) waits: bool,
    pub(crate) terms: Terms,
    pub(crate) who: Who,
    pub(crate) place: &'static Location<'static>,
    /// When it was asked.
    pub(super) since: Micros,
    /// The engine's answer about its claim.
    pub(super) confirmed: Confirmed,
}

impl Request {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_another_request_could_use_lingers() {
        let linger = |mode, change: fn(&mut Terms)| {
            let mut terms = Terms {
                linger: Duration::from_secs(1),
                ..Terms::default()
            };
            change(&mut terms);
            !Request::new(mode, true, &terms, Location::caller(), 0)
                .linger()
                .is_zero()
        };
        let (some, all) = (
            Mode::Permits { count: 1, of: 2 },
            Mode::Permits { count: 2, of: 2 },
        );
        for mode in [Mode::Mutex, Mode::Read, Mode::Write, all] {
            assert!(linger(mode, |_| {}), "{mode}");
            assert!(!linger(mode, |terms| terms.strict = true), "{mode}");
            assert!(!linger(mode, |terms| terms.keep_alive = false), "{mode}");
        }
        assert!(!linger(some, |_| {}));
    }
}
