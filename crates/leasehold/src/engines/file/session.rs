//! One client's life in a directory.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::life::Life;
use super::lines::Lines;
use super::world::{World, ahead_of};
use crate::claim::{Claim, SessionId};
use crate::clock::Micros;
use crate::engine::{Event, Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
use crate::line::{Change, Line, Moment, Refusal};

/// A session: what it has in which lines, and its presence in the directory.
pub(super) struct FileSession {
    pub(super) world: Arc<World>,
    who: Identity,
    pub(super) inbox: Inbox,
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
    pub(super) fn revive(&self, step: Step) -> Result<()> {
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

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        if !self.present(&*self.life(Step::Heartbeat)?) {
            self.revive(Step::Heartbeat)?;
            claims.iter().for_each(|claim| heard(claim, Standing::Gone));
            return Ok(());
        }
        let mut failed = None;
        for (done, claim) in claims.iter().enumerate() {
            match self.beat(claim).await {
                Ok(standing) => heard(claim, standing),
                // The others are kept alive all the same.
                Err(error) => failed = Some(error.of(&claim.name)),
            }
            if done % 32 == 31 {
                tokio::task::yield_now().await;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn lease(&self, claim: &Claim) -> Duration {
        claim.lease
    }

    async fn release(&self, claim: &Claim, used: u32) -> Result<Release> {
        let leave = |line: &mut Line, at, _| line.release(claim.id, used, at);
        let released = self.on(Step::Release, &claim.name, leave).await?;
        Ok(released.unwrap_or(Release::Gone))
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
