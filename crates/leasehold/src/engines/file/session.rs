//! One client's life in a directory.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use rustix::io::Errno;
use tokio::sync::Notify;

use super::error::Trouble;
use super::life::Life;
use super::lines::{Lines, Note, Place, Slot, Tried};
use super::world::{For, PATIENCE, World, ahead_of};
use crate::claim::{Claim, Ids, SessionId};
use crate::clock::Micros;
use crate::engine::{Event, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
use crate::line::{Change, Line, Moment, Refusal};
use crate::name::Name;
use crate::sync::Shared;

/// A session: what it has in which lines, and its presence in the directory.
pub(super) struct FileSession {
    pub(super) world: Arc<World>,
    who: Identity,
    inbox: Inbox,
    pub(super) lines: Lines,
    this: Weak<Self>,
    touched: AtomicU64,
    pub(super) untidy: AtomicBool,
    pub(super) tidy: Arc<Notify>,
}

/// How often a session's file is touched.
const TOUCH: Micros = 3_600_000_000;

impl FileSession {
    pub(super) fn open(world: Arc<World>, who: Identity, inbox: Inbox) -> Result<Arc<Self>> {
        let session = Arc::new_cyclic(|this| Self {
            touched: AtomicU64::new(world.clock.now()),
            world,
            who,
            inbox,
            lines: Lines::default(),
            this: this.clone(),
            untidy: AtomicBool::new(false),
            tidy: Arc::default(),
        });
        let life = session.begin(Step::Open)?;
        session.lines.change_life(|none| *none = Some(life));
        Ok(session)
    }

    fn begin(&self, step: Step) -> Result<Arc<Life>> {
        let life = Life::begin(
            &self.world.dir,
            &self.who,
            &self.inbox,
            &self.this,
            &self.tidy,
        );
        life.map(Arc::new).map_err(|trouble| trouble.at(step))
    }

    /// The session as the directory knows it.
    fn life(&self, step: Step) -> Result<Arc<Life>> {
        let life = self.lines.life();
        life.ok_or_else(|| Error::closed(step).on("file"))
    }

    /// Begins anew in a directory that was removed: everything this session had is lost.
    fn revive(&self, step: Step) -> Result<()> {
        let begun = self.lines.change_life(|life| {
            let Some(old) = life else {
                return Err(Error::closed(step).on("file"));
            };
            let dir = &self.world.dir;
            dir.prepare().map_err(|trouble| trouble.at(step))?;
            let gone = old.presence.is_elsewhere();
            if gone {
                *old = self.begin(step)?;
            }
            Ok(gone)
        });
        if !begun? {
            return Ok(());
        }
        let why = format!("{} was removed", self.world.dir.root.display());
        tracing::warn!(why, "the session begins anew");
        self.inbox.deliver(Event::Down(why));
        Ok(())
    }

    /// Does one piece of work on a line; none if there is no such line. Only a claim makes one.
    ///
    /// The work happens within one poll, so a future that was dropped does nothing later.
    async fn on<T>(
        &self,
        step: Step,
        name: &Name,
        mut work: impl FnMut(&mut Line, Moment, SessionId) -> (T, Vec<Change>) + Send,
    ) -> Result<Option<T>> {
        let mut give_up = None;
        let mut revived = false;
        loop {
            let found = self.lines.slot_and_session(name);
            let (slot, me) = found.ok_or_else(|| Error::closed(step).on("file"))?;
            match self.attempt(slot, me, step, name, &mut work) {
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
            // In a box: what is rarely needed must not make the future large.
            Box::pin(tokio::time::sleep(Duration::from_millis(1))).await;
        }
    }

    /// Like [`on`](Self::on), once: none if the line is busy, or the directory has to be made anew.
    fn now<T>(
        &self,
        step: Step,
        name: &Name,
        mut work: impl FnMut(&mut Line, Moment, SessionId) -> (T, Vec<Change>),
    ) -> Option<Result<Option<T>>> {
        let (slot, me) = self.lines.slot_and_session(name)?;
        match self.attempt(slot, me, step, name, &mut work) {
            Ok(Tried::Done(answer)) => Some(Ok(Some(answer))),
            Ok(Tried::Absent) => Some(Ok(None)),
            Ok(Tried::Busy) => None,
            Err(trouble) if trouble.is_missing() => None,
            Err(trouble) => Some(Err(trouble.at(step))),
        }
    }

    fn attempt<T>(
        &self,
        slot: Arc<Shared<Slot>>,
        me: SessionId,
        step: Step,
        name: &Name,
        work: &mut impl FnMut(&mut Line, Moment, SessionId) -> (T, Vec<Change>),
    ) -> std::result::Result<Tried<T>, Trouble> {
        let mut slot = slot.lock();
        let Slot { store, note } = &mut *slot;
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
            let work = |line: &mut Line, at: Moment| work(line, at, me);
            self.world.work(&mut locked, Some(by), work)
        })?;
        let done = match tried {
            Tried::Done(done) => done,
            Tried::Busy => return Ok(Tried::Busy),
            Tried::Absent => {
                *note = Note::absent(self.world.clock.now());
                self.leave_untidy();
                return Ok(Tried::Absent);
            }
        };
        if note.idle.is_some() {
            self.leave_untidy();
        }
        self.watch(&note.ahead);
        // What is told may come back here.
        drop(slot);
        self.tell(me, &done.changes);
        Ok(Tried::Done(done.answer))
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
    fn watch(&self, sessions: &Ids<SessionId>) {
        if !sessions.is_empty()
            && let Some(life) = self.lines.life()
        {
            for session in sessions {
                super::alive::watch(&self.world.dir, *session, &life.ended);
            }
        }
    }

    fn tell(&self, me: SessionId, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let (mine, others): (Vec<_>, Vec<_>) =
            changes.iter().partition(|change| change.session == me);
        self.world.tell(others, None);
        for change in mine {
            self.inbox.deliver(change.event(None));
        }
    }

    /// A session that somebody's work waits for has ended: the lines move on.
    pub(super) async fn bury(&self, dead: SessionId) {
        for name in self.lines.names(|slot| slot.note.ahead.contains(&dead)) {
            let sweep = |line: &mut Line, at: Moment, _| {
                ((), line.sweep_dead(at, |session| session == dead))
            };
            if let Err(error) = self.on(Step::Wait, &name, sweep).await {
                tracing::debug!(%error, "a dead session's claims are left to their lease");
            }
        }
    }

    /// Keeps the session's own file fresh; false if it is gone.
    fn present(&self, life: &Life) -> bool {
        let now = self.world.clock.now();
        if now.saturating_sub(self.touched.load(Ordering::Relaxed)) >= TOUCH {
            self.touched.store(now, Ordering::Relaxed);
            life.presence.touch();
            // What is written through a mapping does not make a file new.
            for name in self.lines.names(|slot| slot.note.mine) {
                super::alive::touch(&self.world.dir.line(&name));
            }
        }
        !life.presence.is_elsewhere()
    }

    /// Lets a claim into its line.
    fn join(&self, claim: &Claim, line: &mut Line, at: Moment, me: SessionId) -> Joined {
        let ask = claim.ask(me);
        let (answer, mut changes) = line.claim(&ask, at);
        let in_the_way = match answer {
            Ok(Standing::Waiting { .. } | Standing::Busy) => ahead_of(line, claim.id, me),
            Err(Refusal::Capacity(_)) => line.places().map(|place| place.session).collect(),
            _ => return (answer, changes),
        };
        match self.world.clear_way(line, at, in_the_way) {
            None => (answer, changes),
            Some(more) => {
                let (answer, last) = line.claim(&ask, at);
                changes.extend(more.into_iter().chain(last));
                (answer, changes)
            }
        }
    }

    async fn beat(&self, claim: &Claim) -> Result<Standing> {
        let standing = self.on(Step::Heartbeat, &claim.name, |line, at, me| {
            let (mut standing, mut changes) = line.heartbeat(claim.id, at);
            if matches!(standing, Standing::Waiting { .. })
                && let Some(more) = self.world.clear_way(line, at, ahead_of(line, claim.id, me))
            {
                changes.extend(more);
                standing = line.standing(claim.id, at);
            }
            (standing, changes)
        });
        Ok(standing.await?.unwrap_or(Standing::Gone))
    }
}

/// What a line says to a claim.
type Joined = (std::result::Result<Standing, Refusal>, Vec<Change>);

fn standing(answer: Option<std::result::Result<Standing, Refusal>>) -> Result<Standing> {
    let answer = answer.unwrap_or(Ok(Standing::Gone));
    answer.map_err(|refusal| Error::from(refusal).on("file"))
}

#[async_trait]
impl Session for FileSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let join = |line: &mut Line, at, me| self.join(claim, line, at, me);
        standing(self.on(Step::Claim, &claim.name, join).await?)
    }

    fn claim_now(&self, claim: &Claim) -> Option<Result<Standing>> {
        let join = |line: &mut Line, at, me| self.join(claim, line, at, me);
        let joined = self.now(Step::Claim, &claim.name, join)?;
        Some(joined.and_then(standing))
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>]) -> Result<Vec<Standing>> {
        if !self.present(&*self.life(Step::Heartbeat)?) {
            self.revive(Step::Heartbeat)?;
            return Ok(vec![Standing::Gone; claims.len()]);
        }
        let mut standings = Vec::with_capacity(claims.len());
        let mut failed = None;
        for (done, claim) in claims.iter().enumerate() {
            match self.beat(claim).await {
                Ok(standing) => standings.push(standing),
                // The others are kept alive all the same.
                Err(error) => failed = Some(error.of(&claim.name)),
            }
            if done % 32 == 31 {
                tokio::task::yield_now().await;
            }
        }
        failed.map_or(Ok(standings), Err)
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let leave = |line: &mut Line, at, _| line.release(claim.id, used, at);
        let released = self.on(Step::Release, &claim.name, leave).await?;
        Ok(released.unwrap_or(Release::Gone))
    }

    fn release_now(&self, claim: &Claim, used: u32) -> Option<Result<Release>> {
        let leave = |line: &mut Line, at, _| line.release(claim.id, used, at);
        let released = self.now(Step::Release, &claim.name, leave)?;
        Some(released.map(|released| released.unwrap_or(Release::Gone)))
    }

    async fn close(&self) -> Result<()> {
        let Some(life) = self.lines.life() else {
            return Ok(());
        };
        let me = life.presence.id;
        let mut failed = None;
        for name in self.lines.names(|slot| slot.note.mine) {
            let leave =
                |line: &mut Line, at: Moment, _| ((), line.sweep_dead(at, |session| session == me));
            if let Err(error) = self.on(Step::Close, &name, leave).await {
                failed = Some(error);
            }
        }
        self.tidy_up().await;
        // With its file the last of the session goes, and whatever could not be released above.
        drop(self.lines.change_life(Option::take));
        failed.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for FileSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSession({})", self.world.dir.root.display())
    }
}
