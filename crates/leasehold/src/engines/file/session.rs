//! One client's life in a directory.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::UnixDatagram;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};

use super::cleanup;
use super::error::Trouble;
use super::notify;
use super::presence::Presence;
use super::slots::Slots;
use super::transaction::{Outcome, Patience, World, ahead_of};
use crate::claim::{Claim, SessionId};
use crate::clock::Micros;
use crate::engine::{Event, Heard, Identity, Inbox, Release, Session, Standing};
use crate::error::{Error, Result, Step};
use crate::line::{Change, Line, Moment, Refusal};
use crate::name::Name;
use crate::sync::Shared;

/// A session: its claims, and its presence in the directory.
pub(super) struct FileSession {
    pub(super) world: Arc<World>,
    who: Identity,
    pub(super) inbox: Inbox,
    pub(super) slots: Slots,
    /// None once the session is closed.
    life: Shared<Option<Arc<Life>>>,
    this: Weak<Self>,
    touched: AtomicU64,
    pub(super) untidy: AtomicBool,
    pub(super) tidy: Arc<Notify>,
}

/// A session as the directory knows it, and the task that hears for it. Should the directory be removed, the session
/// gets another one.
pub(super) struct Life {
    pub(super) presence: Presence,
    /// Hears which of the watched sessions have ended.
    pub(super) ended: UnboundedSender<SessionId>,
    task: AbortHandle,
}

/// How often a session's files are touched.
const TOUCH: Micros = 3_600_000_000;

/// Lines worked on before other tasks get their turn.
const AT_ONCE: usize = 32;

impl FileSession {
    pub(super) fn open(world: Arc<World>, who: Identity, inbox: Inbox) -> Result<Arc<Self>> {
        let session = Arc::new_cyclic(|this| Self {
            touched: AtomicU64::new(world.clock.now()),
            world,
            who,
            inbox,
            slots: Slots::default(),
            life: Shared::default(),
            this: this.clone(),
            untidy: AtomicBool::new(false),
            tidy: Arc::default(),
        });
        let life = session.begin().map_err(|trouble| trouble.at(Step::Open))?;
        *session.life.lock() = Some(life);
        Ok(session)
    }

    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    fn begin(&self) -> std::result::Result<Arc<Life>, Trouble> {
        let dir = &self.world.dir;
        let presence = Presence::open(dir, &self.who)?;
        let socket = notify::bind(&dir.socket(presence.id))?;
        let (ended, ends) = unbounded_channel();
        let (inbox, session, untidy) = (self.inbox.clone(), self.this.clone(), self.tidy.clone());
        let task = tokio::spawn(async move {
            let _ = tokio::join!(
                hear(socket, inbox),
                bury(ends, session.clone()),
                cleanup::tidy_in_turn(untidy, session)
            );
        });
        let task = task.abort_handle();
        Ok(Arc::new(Life {
            presence,
            ended,
            task,
        }))
    }

    /// The session as the directory knows it.
    pub(super) fn life(&self) -> std::result::Result<Arc<Life>, Trouble> {
        self.life.lock().clone().ok_or_else(Trouble::closed)
    }

    /// Begins anew in a directory that was removed: everything this session had is lost. Says why, if that was so.
    ///
    /// A claim that finds the directory gone goes on in the new one, so no event is told for it: `Down` would end that claim
    /// too. The next heartbeat finds the others gone.
    fn revive(&self) -> std::result::Result<Option<String>, Trouble> {
        let mut life = self.life.lock();
        let Some(old) = &mut *life else {
            return Err(Trouble::closed());
        };
        self.world.dir.prepare()?;
        if !old.presence.is_elsewhere() {
            return Ok(None);
        }
        *old = self.begin()?;
        let why = format!("{} was removed", self.world.dir.root.display());
        tracing::warn!(why, "the session begins anew");
        Ok(Some(why))
    }

    /// Works on a line, as soon as it is free to be worked on; none if there is no such line.
    ///
    /// The work happens within one poll, so a future that was dropped does nothing later.
    async fn on<T>(
        &self,
        step: Step,
        name: &Name,
        mut rule: impl FnMut(&mut Line, Moment, SessionId) -> (T, Vec<Change>) + Send,
    ) -> Result<Option<T>> {
        let mut patience = Patience::default();
        let mut revived = false;
        loop {
            match self.transact(step, name, &mut rule) {
                Ok(Outcome::Done(answer)) => return Ok(Some(answer)),
                Ok(Outcome::Absent) => return Ok(None),
                Ok(Outcome::Busy) => patience.pause(&self.world, step, name).await?,
                Err(trouble) if step == Step::Claim && !revived && trouble.is_missing() => {
                    revived = true;
                    let _ = self.revive().map_err(|trouble| trouble.at(step))?;
                }
                Err(trouble) => return Err(trouble.at(step)),
            }
        }
    }

    /// Works on many lines. One that is busy, or damaged, keeps no other from its turn; of several errors the last is
    /// told.
    async fn on_each<'a>(
        &self,
        step: Step,
        names: impl Iterator<Item = &'a Name> + Send,
        mut work: impl FnMut(usize) -> std::result::Result<Outcome<()>, Trouble> + Send,
    ) -> Result<()> {
        let mut patience = Patience::default();
        let mut left: Vec<_> = names.enumerate().collect();
        let mut failed = None;
        while !left.is_empty() {
            for (done, (at, name)) in std::mem::take(&mut left).into_iter().enumerate() {
                match work(at) {
                    Ok(Outcome::Busy) => left.push((at, name)),
                    Ok(_) => {}
                    Err(trouble) => failed = Some(trouble.at(step).of(name)),
                }
                if done % AT_ONCE == AT_ONCE - 1 {
                    tokio::task::yield_now().await;
                }
            }
            if let Some((_, name)) = left.first() {
                patience.pause(&self.world, step, name).await?;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Drops the claims of a session that has ended from these lines.
    async fn sweep(&self, step: Step, names: &[Name], dead: SessionId) -> Result<()> {
        let sweep = |line: &mut Line, at: Moment, _: SessionId| {
            ((), line.sweep_dead(at, |session| session == dead))
        };
        let work = |at: usize| self.transact(step, &names[at], sweep);
        self.on_each(step, names.iter(), work).await
    }

    /// Keeps the session's own files fresh; false if they are gone.
    fn present(&self, life: &Life) -> bool {
        let now = self.world.clock.now();
        if now.saturating_sub(self.touched.load(Ordering::Relaxed)) >= TOUCH {
            self.touched.store(now, Ordering::Relaxed);
            life.presence.touch();
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

    /// Renews a claim, and looks after those it waits for.
    fn beat(&self, claim: &Claim) -> std::result::Result<Outcome<Standing>, Trouble> {
        self.transact(Step::Heartbeat, &claim.name, |line, at, me| {
            let (mut standing, mut changes) = line.heartbeat(claim.id, at);
            if matches!(standing, Standing::Waiting { .. })
                && let Some(more) = self.world.clear_way(line, at, ahead_of(line, claim.id, me))
            {
                changes.extend(more);
                standing = line.standing(claim.id, at);
            }
            (standing, changes)
        })
    }
}

/// The answer of a line to a claim.
type Joined = (std::result::Result<Standing, Refusal>, Vec<Change>);

#[async_trait]
impl Session for FileSession {
    async fn claim(&self, claim: &Claim) -> Result<Standing> {
        let join = |line: &mut Line, at, me| self.join(claim, line, at, me);
        let joined = self.on(Step::Claim, &claim.name, join).await?;
        let standing = joined.unwrap_or(Ok(Standing::Gone));
        standing.map_err(|refusal| Error::from(refusal).on("file"))
    }

    async fn heartbeat(&self, claims: &[Arc<Claim>], heard: &Heard<'_>) -> Result<()> {
        let at = |trouble: Trouble| trouble.at(Step::Heartbeat);
        if !self.present(&*self.life().map_err(at)?) {
            if let Some(why) = self.revive().map_err(at)? {
                self.inbox.deliver(Event::Down(why));
            }
            claims.iter().for_each(|claim| heard(claim, Standing::Gone));
            return Ok(());
        }
        let names = claims.iter().map(|claim| &claim.name);
        let beat = |at: usize| {
            let claim = &claims[at];
            let standing = match self.beat(claim)? {
                Outcome::Done(standing) => standing,
                Outcome::Absent => Standing::Gone,
                Outcome::Busy => return Ok(Outcome::Busy),
            };
            heard(claim, standing);
            Ok(Outcome::Done(()))
        };
        self.on_each(Step::Heartbeat, names, beat).await
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
        let Ok(life) = self.life() else {
            return Ok(());
        };
        let mine = self.slots.names(|slot| slot.note.mine);
        let swept = self.sweep(Step::Close, &mine, life.presence.id).await;
        self.tidy_up().await;
        // With its file the last of the session goes, and what could not be released above.
        drop(self.life.lock().take());
        swept
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Receives messages of other processes; datagrams in another format are ignored.
async fn hear(socket: UnixDatagram, inbox: Inbox) {
    let mut message = [0; notify::LARGEST];
    loop {
        match socket.recv(&mut message).await {
            Ok(length) => {
                if let Some(event) = notify::decode(&message[..length]) {
                    inbox.deliver(event);
                }
            }
            Err(error) => {
                // Heartbeats go on without it.
                tracing::warn!(%error, "the socket failed; heartbeats go on without messages");
                return;
            }
        }
    }
}

/// Lets the lines move on in which this session waits for one that has ended. A line that is stuck keeps no other burial.
async fn bury(mut ends: UnboundedReceiver<SessionId>, session: Weak<FileSession>) {
    let mut burials = JoinSet::new();
    while let Some(dead) = ends.recv().await {
        while burials.try_join_next().is_some() {}
        let Some(session) = session.upgrade() else {
            return;
        };
        let _ = burials.spawn(async move {
            let names = session.slots.names(|slot| slot.note.ahead.contains(&dead));
            if let Err(error) = session.sweep(Step::Wait, &names, dead).await {
                tracing::debug!(%error, "a dead session's claims are left to their lease");
            }
        });
    }
}

impl fmt::Debug for FileSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSession({})", self.world.dir.root.display())
    }
}
