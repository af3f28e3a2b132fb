//! What the sessions of one directory share, and how work on a line is done.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::path::Path;

use super::alive;
use super::dir::{Dir, io};
use super::error::Trouble;
use super::lines::Note;
use super::push::Post;
use super::store::Locked;
use crate::claim::{ClaimId, IdHasher, SessionId};
use crate::clock::Micros;
use crate::engine::{Clock, Ended};
use crate::error::{Error, ErrorKind, Step};
use crate::line::{Change, Line, Moment, What};
use crate::name::Name;

/// A directory, a clock, and a way to tell other sessions.
#[derive(Debug)]
pub(super) struct World {
    pub(super) dir: Dir,
    pub(super) clock: Clock,
    pub(super) post: Post,
}

/// Work done on a line.
pub(super) struct Done<T> {
    pub(super) answer: T,
    /// To be told once the file is unlocked.
    pub(super) changes: Vec<Change>,
}

/// For whom work is done, and what he remembers of the line.
pub(super) struct For<'a> {
    pub(super) session: SessionId,
    /// Whether one of his claims may join the line.
    pub(super) joins: bool,
    pub(super) note: &'a mut Note,
}

/// Some of the sessions.
pub(super) type Sessions = HashSet<SessionId, BuildHasherDefault<IdHasher>>;

/// How long a line may be busy with others before an operation gives up.
pub(super) const PATIENCE: Micros = 10_000_000;

impl World {
    pub(super) fn open(dir: &Path, clock: Clock) -> Result<Self, Trouble> {
        let dir = Dir::open(dir)?;
        let post = Post::new().map_err(|error| io("send from", &dir.root, &error))?;
        Ok(Self { dir, clock, post })
    }

    /// The error of an operation that gave up. Nothing has happened.
    pub(super) fn busy(&self, step: Step, name: &Name) -> Error {
        let path = self.dir.line(name);
        let what = format!(
            "{} was locked for 10 s: is a process stopped in the middle of its work?",
            path.display()
        );
        Error::new(ErrorKind::TimedOut, step, what)
            .on("file")
            .of(name)
    }

    pub(super) fn moment(&self) -> Moment {
        Moment {
            now: self.clock.now(),
            floor: self.clock.wall(),
        }
    }

    /// Does one piece of work on a locked line, for a session or for nobody. If this fails, nothing has happened.
    pub(super) fn work<T>(
        &self,
        locked: &mut Locked<'_>,
        me: Option<For<'_>>,
        work: impl FnOnce(&mut Line, Moment) -> (T, Vec<Change>),
    ) -> Result<Done<T>, Trouble> {
        let line = locked.line()?;
        let joins = me.as_ref().is_some_and(|me| me.joins);
        let at = match joins || line.waiters().len() > 0 {
            true => self.moment(),
            // Nobody can be granted anything, so no fence is needed: the wall clock is not looked at.
            false => Moment {
                now: self.clock.now(),
                floor: 0,
            },
        };
        let (answer, mut changes) = work(line, at);
        if !changes.is_empty() {
            let session = me.as_ref().map(|me| me.session);
            self.skip_dead(line, at, session, &mut changes);
        }
        locked.write()?;
        if let Some(me) = me {
            me.note.take(locked.written(), me.session, at.now);
        }
        Ok(Done { answer, changes })
    }

    /// No grant stays with a session that is dead: the next one gets it.
    fn skip_dead(
        &self,
        line: &mut Line,
        at: Moment,
        me: Option<SessionId>,
        changes: &mut Vec<Change>,
    ) {
        let to_others =
            |change: &Change| matches!(change.what, What::Granted(_)) && Some(change.session) != me;
        if !changes.iter().any(to_others) {
            return;
        }
        let mut alive: Sessions = me.into_iter().collect();
        loop {
            let granted = changes
                .iter()
                .filter(|change| matches!(change.what, What::Granted(_)));
            let asked: Sessions = granted.map(|change| change.session).collect();
            let dead = self.dead_among(asked.difference(&alive).copied());
            alive.extend(asked);
            if dead.is_empty() {
                return;
            }
            changes.extend(line.sweep_dead(at, |session| dead.contains(&session)));
            changes.retain(|change| !dead.contains(&change.session));
            alive.retain(|session| !dead.contains(session));
        }
    }

    pub(super) fn dead_among(&self, sessions: impl IntoIterator<Item = SessionId>) -> Sessions {
        let dead = |session: &SessionId| alive::is_dead(&self.dir, *session);
        sessions.into_iter().filter(dead).collect()
    }

    /// Drops the dead among those a claim waits for.
    pub(super) fn clear_way(
        &self,
        line: &mut Line,
        at: Moment,
        ahead: Sessions,
    ) -> Option<Vec<Change>> {
        let dead = self.dead_among(ahead);
        (!dead.is_empty()).then(|| line.sweep_dead(at, |session| dead.contains(&session)))
    }

    /// Tells other sessions what happened to their claims.
    pub(super) fn tell<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a Change>,
        evicted: Option<&Ended>,
    ) {
        for change in changes {
            self.post
                .send(&self.dir, change.session, &change.event(evicted));
        }
    }
}

/// Whom a claim waits for: the holders if it is the first to wait, else the one before it. A claim that is not in the
/// line would wait for the holders.
pub(super) fn ahead_of(line: &Line, claim: ClaimId, me: SessionId) -> Sessions {
    let index = line.places().position(|place| place.id == claim);
    let before = match index {
        Some(index) if index > line.holders().len() => (index - 1)..index,
        _ => 0..line.holders().len(),
    };
    let before = line.places().skip(before.start).take(before.len());
    before
        .map(|place| place.session)
        .filter(|session| *session != me)
        .collect()
}
