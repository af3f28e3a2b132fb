//! A transaction on a line: lock its file, read it, apply the rule, write it, unlock it, tell what changed.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::path::Path;
use std::time::Duration;

use super::dir::{Dir, io};
use super::error::Trouble;
use super::notify::Post;
use super::presence;
use super::session::FileSession;
use super::slots::{Note, enter};
use super::store::{self, Lock};
use crate::claim::{ClaimId, IdHasher, SessionId};
use crate::clock::Micros;
use crate::engine::{Clock, Ended};
use crate::error::{Error, ErrorKind, Step};
use crate::line::{Change, Line, Moment, What};
use crate::name::Name;

/// Shared by the sessions of one directory.
#[derive(Debug)]
pub(super) struct World {
    pub(super) dir: Dir,
    pub(super) clock: Clock,
    post: Post,
}

pub(super) enum Outcome<T> {
    Done(T),
    /// Another process is at work on the line: nothing has happened.
    Busy,
    /// There is no such line.
    Absent,
}

/// Some of the sessions.
pub(super) type Sessions = HashSet<SessionId, BuildHasherDefault<IdHasher>>;

impl FileSession {
    /// One transaction on a line. Only a claim makes a line that is not there. If this fails, nothing has happened.
    ///
    /// It never waits: for a process that is at work on the line the caller comes again.
    pub(super) fn transact<T>(
        &self,
        step: Step,
        name: &Name,
        rule: impl FnOnce(&mut Line, Moment, SessionId) -> (T, Vec<Change>),
    ) -> Result<Outcome<T>, Trouble> {
        let (world, life) = (&*self.world, self.life()?);
        let (me, joins) = (life.presence.id, step == Step::Claim);
        let slot = self.slots.of(name);
        let Some(mut guard) = enter(&slot) else {
            return Ok(Outcome::Busy);
        };
        let slot = &mut *guard;
        if slot.forgotten {
            return Ok(Outcome::Busy);
        }
        let keep_open = slot.store.is_some() || !self.slots.are_many();

        // Lock the file, and read it. One that had to be opened may be in a directory that was made anew, where this
        // session is not known.
        let known = || life.presence.check();
        let mut locked = match store::lock(&mut slot.store, &world.dir, name, joins, known)? {
            Lock::Got(locked) => locked,
            Lock::Busy => return Ok(Outcome::Busy),
            Lock::Absent => {
                slot.note = Note::absent(world.clock.now());
                self.leave_untidy();
                return Ok(Outcome::Absent);
            }
        };

        // Apply the rule.
        let at = world.moment();
        let (answer, mut changes) = rule(&mut locked.line, at, me);
        world.skip_dead(&mut locked.line, at, Some(me), &mut changes);

        // Write what came of it.
        locked.write()?;
        slot.note = Note::of(&locked.line, me, at.now);

        // Unlock the file.
        drop(locked);
        if !keep_open {
            slot.store = None;
        }
        for session in &slot.note.ahead {
            presence::watch(&world.dir, *session, &life.ended);
        }
        if slot.note.idle.is_some() {
            self.leave_untidy();
        }
        drop(guard);

        // Tell, under no lock: the session that is told may come back here.
        for change in changes {
            match change.session == me {
                true => self.inbox.deliver(change.event(None)),
                false => world.tell(&change, None),
            }
        }
        Ok(Outcome::Done(answer))
    }
}

impl World {
    pub(super) fn open(dir: &Path, clock: Clock) -> Result<Self, Trouble> {
        let dir = Dir::open(dir)?;
        let post = Post::new().map_err(|error| io("send from", &dir.root, &error))?;
        Ok(Self { dir, clock, post })
    }

    pub(super) fn moment(&self) -> Moment {
        Moment {
            now: self.clock.now(),
            floor: self.clock.wall(),
        }
    }

    /// No grant stays with a session that is dead: the next one gets it.
    pub(super) fn skip_dead(
        &self,
        line: &mut Line,
        at: Moment,
        me: Option<SessionId>,
        changes: &mut Vec<Change>,
    ) {
        let mut alive = Sessions::default();
        loop {
            let granted = |change: &&Change| matches!(change.what, What::Granted(_));
            let granted = changes.iter().filter(granted).map(|change| change.session);
            let unknown = |session: &SessionId| Some(*session) != me && !alive.contains(session);
            let unknown: Sessions = granted.filter(unknown).collect();
            let dead = self.dead_among(unknown.iter().copied());
            if dead.is_empty() {
                return;
            }
            alive.extend(unknown.difference(&dead));
            changes.extend(line.sweep_dead(at, |session| dead.contains(&session)));
            changes.retain(|change| !dead.contains(&change.session));
        }
    }

    pub(super) fn dead_among(&self, sessions: impl IntoIterator<Item = SessionId>) -> Sessions {
        let dead = |session: &SessionId| presence::is_dead(&self.dir, *session);
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

    /// Tells another session what happened to its claim.
    pub(super) fn tell(&self, change: &Change, evicted: Option<&Ended>) {
        self.post
            .send(&self.dir, change.session, &change.event(evicted));
    }
}

/// The sessions that a claim waits for: the holders if it is the first to wait, else the one before it. A claim that is
/// not in the line would wait for the holders.
pub(super) fn ahead_of(line: &Line, claim: ClaimId, me: SessionId) -> Sessions {
    let index = line.places().position(|place| place.id == claim);
    let before = match index {
        Some(index) if index > line.holders().len() => (index - 1)..index,
        _ => 0..line.holders().len(),
    };
    let before = line.places().skip(before.start).take(before.len());
    let sessions = before.map(|place| place.session);
    sessions.filter(|session| *session != me).collect()
}

/// How long an operation comes again to lines that are busy, and how soon.
#[derive(Default)]
pub(super) struct Patience {
    give_up: Option<Micros>,
    pause: Duration,
}

/// Longer than any work on a line takes.
const PATIENCE: Micros = 10_000_000;

/// Work on a line takes microseconds. A line that is still busy after a few looks is stuck, and the looks of all who wait
/// for it must not cost other lines the processor.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

impl Patience {
    /// Waits a moment; an error once it has been too long. Nothing has happened then.
    pub(super) async fn pause(
        &mut self,
        world: &World,
        step: Step,
        name: &Name,
    ) -> Result<(), Error> {
        let now = world.clock.now();
        if now < *self.give_up.get_or_insert(now.saturating_add(PATIENCE)) {
            self.pause = (self.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            tokio::time::sleep(self.pause).await;
            return Ok(());
        }
        let what = format!(
            "{} was locked for 10 s. Is a process stopped in the middle of its work, or does another program lock this \
             file? `fuser -v` shows it",
            world.dir.line(name).display()
        );
        let error = Error::new(ErrorKind::TimedOut, step, what);
        Err(error.on("file").of(name))
    }
}
