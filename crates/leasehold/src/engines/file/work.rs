//! One piece of work of a session on one of its lines.

use std::time::Duration;

use rustix::io::Errno;

use super::error::Trouble;
use super::lines::{Note, Place, Slot, Tried};
use super::session::FileSession;
use super::world::{Done, For, PATIENCE, Sessions};
use crate::claim::SessionId;
use crate::error::{Error, Result, Step};
use crate::line::{Change, Line, Moment};
use crate::name::Name;

impl FileSession {
    /// Does one piece of work on a line; none if there is no such line. Only a claim makes one.
    ///
    /// The work happens within one poll, so a future that was dropped does nothing later.
    pub(super) async fn on<T>(
        &self,
        step: Step,
        name: &Name,
        mut work: impl FnMut(&mut Line, Moment, SessionId) -> (T, Vec<Change>) + Send,
    ) -> Result<Option<T>> {
        let mut give_up = None;
        let mut revived = false;
        loop {
            let attempt = self.attempt(step, name, &mut work);
            match attempt.ok_or_else(|| Error::closed(step).on("file"))? {
                Ok(Tried::Done(answer)) => return Ok(Some(answer)),
                Ok(Tried::Absent) => return Ok(None),
                Ok(Tried::Busy) => {}
                Err(trouble) if step == Step::Claim && !revived && trouble.is_missing() => {
                    revived = true;
                    self.revive(step)?;
                    continue;
                }
                Err(trouble) => return Err(trouble.at(step)),
            }
            let now = self.world.clock.now();
            if now >= *give_up.get_or_insert(now.saturating_add(PATIENCE)) {
                return Err(self.world.busy(step, name));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Tries once; none once the session is closed.
    fn attempt<T>(
        &self,
        step: Step,
        name: &Name,
        work: &mut impl FnMut(&mut Line, Moment, SessionId) -> (T, Vec<Change>),
    ) -> Option<std::result::Result<Tried<T>, Trouble>> {
        let (me, tried) = self.lines.work(name, |slot, me| {
            let work = |line: &mut Line, at: Moment| work(line, at, me);
            (me, self.work_on(slot, me, step, name, work))
        })?;
        Some(tried.map(|tried| match tried {
            Tried::Done(done) => {
                // Not under the lock: what is told may come back here.
                if !done.changes.is_empty() {
                    self.tell(me, &done.changes);
                }
                Tried::Done(done.answer)
            }
            Tried::Busy => Tried::Busy,
            Tried::Absent => Tried::Absent,
        }))
    }

    fn work_on<T>(
        &self,
        slot: &mut Slot,
        me: SessionId,
        step: Step,
        name: &Name,
        work: impl FnOnce(&mut Line, Moment) -> (T, Vec<Change>),
    ) -> std::result::Result<Tried<Done<T>>, Trouble> {
        let Slot { store, note } = slot;
        let place = Place {
            dir: &self.world.dir,
            name,
            make: step == Step::Claim,
            // A file that had to be opened anew may be in a directory that was made anew.
            opened: &|| self.check(me),
        };
        let tried = self.lines.with(store, &place, |mut locked| {
            let by = For {
                session: me,
                joins: place.make,
                note: &mut *note,
            };
            self.world.work(&mut locked, Some(by), work)
        })?;
        match tried {
            Tried::Busy => return Ok(tried),
            Tried::Absent => *note = Note::absent(self.world.clock.now()),
            Tried::Done(_) if note.ahead.is_empty() => {}
            Tried::Done(_) => self.watch(&note.ahead),
        }
        if note.idle.is_some() {
            self.leave_untidy();
        }
        Ok(tried)
    }

    /// Refuses to work on in the name of a session that is gone.
    fn check(&self, me: SessionId) -> std::result::Result<(), Trouble> {
        match self.lines.life() {
            Some(life) if life.presence.id == me => life.presence.check(),
            _ => Err(Trouble::io(
                "find",
                &self.world.dir.session(me),
                Errno::NOENT,
            )),
        }
    }

    /// Wants to know when one of these sessions ends.
    fn watch(&self, sessions: &Sessions) {
        if let Some(life) = self.lines.life() {
            for session in sessions {
                super::alive::watch(&self.world.dir, *session, &life.ended);
            }
        }
    }

    fn tell(&self, me: SessionId, changes: &[Change]) {
        let (mine, others): (Vec<_>, Vec<_>) =
            changes.iter().partition(|change| change.session == me);
        self.world.tell(others, None);
        for change in mine {
            self.inbox.deliver(change.event(None));
        }
    }
}
