//! What the sessions of one engine share: the tables, the connections, and which session is told what.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::doubt::Doubts;
use super::lanes::{Pool, Turns};
use super::listen::{self, Watch};
use super::op::{Answer, Op};
use super::pin::Pinned;
use super::post::{self, Address};
use super::rows::Known;
use super::tables::Tables;
use super::wire::{Connect, What, Wire};
use crate::claim::{ById, SessionId};
use crate::clock::{Clock, Micros};
use crate::engine::{Ended, Event, Inbox};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::line::{Change, Moment, Release};
use crate::sync::Shared;

/// How an engine was asked to behave.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// How many connections claims are spread over.
    pub(super) lanes: usize,
    /// How long one packet may take.
    pub(super) patience: Duration,
    /// Whether missing tables are created.
    pub(super) create: bool,
    /// Whether to be notified where the database can.
    pub(super) notify: bool,
    /// Whether a commit is answered before it is on disk.
    #[cfg(feature = "postgres")]
    pub(super) relaxed: bool,
    /// Whether no replica ever takes over.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) single: bool,
    /// The clock of a database that has none of its own, or of a test.
    pub(super) clock: Option<Clock>,
    pub(super) location: String,
}

pub(super) struct World {
    pub(super) pinned: Pinned,
    pub(super) known: Known,
    /// The lines that were a crowd when this process last looked.
    pub(super) crowded: Known,
    pub(super) connect: Arc<dyn Connect>,
    pub(super) settings: Settings,
    pub(super) watch: Watch,
    pub(super) doubts: Doubts,
    pub(super) turns: Turns,
    /// The connections for claims and releases.
    pub(super) names: Arc<Pool>,
    /// Those for heartbeats, which wait behind no claim. SQLite has one connection for all.
    pub(super) beats: Arc<Pool>,
    address: OnceLock<Address>,
    ready: tokio::sync::Mutex<()>,
    listener: Shared<Option<tokio::task::JoinHandle<()>>>,
    inboxes: Shared<ById<SessionId, Inbox>>,
    this: Weak<Self>,
}

/// How many heartbeats are under way at once.
const BEATS: usize = 3;

/// How long others may be in the way before an operation gives up.
pub(super) const PATIENCE: Micros = 10_000_000;

impl World {
    pub(super) fn new(tables: Tables, connect: Arc<dyn Connect>, settings: Settings) -> Arc<Self> {
        let names = Pool::of(settings.lanes);
        let beats = match tables.dialect.now() {
            Some(_) => Pool::of(BEATS),
            None => names.clone(),
        };
        Arc::new_cyclic(|this| Self {
            pinned: Pinned::new(tables, settings.clock.is_some()),
            known: Known::default(),
            crowded: Known::default(),
            connect,
            watch: Watch::default(),
            doubts: Doubts::default(),
            turns: Turns::default(),
            names,
            beats,
            settings,
            address: OnceLock::new(),
            ready: tokio::sync::Mutex::default(),
            listener: Shared::default(),
            inboxes: Shared::default(),
            this: this.clone(),
        })
    }

    pub(super) fn this(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// The time as a statement asks for it.
    pub(super) fn now(&self) -> String {
        match (&self.settings.clock, self.tables().dialect.now()) {
            (None, Some(now)) => now.to_owned(),
            (Some(clock), _) => clock.now().to_string(),
            (None, None) => Clock::boot().now().to_string(),
        }
    }

    /// The moment of an operation. Fences start above the wall clock, so that a resource which has seen those of
    /// another engine takes ours.
    pub(super) fn moment(&self, now: Micros) -> Moment {
        let clock = self.settings.clock.as_ref();
        let floor = clock.map_or(now, Clock::wall);
        Moment { now, floor }
    }

    /// The moment as a quick statement is told it, unless it asks the database.
    pub(super) fn bound_now(&self) -> Option<Moment> {
        let clock = self.settings.clock.as_ref();
        clock.map(|clock| self.moment(clock.now()))
    }

    /// A moment of the tables, for people.
    pub(super) fn wall(&self, moment: Micros) -> SystemTime {
        match &self.settings.clock {
            Some(clock) => clock.wall_time_of(moment),
            None => UNIX_EPOCH + Duration::from_micros(moment),
        }
    }

    /// Where this process is told things; decided before the first session opens.
    pub(super) fn address(&self) -> Address {
        *self.address.get_or_init(|| Address::random(true))
    }

    pub(super) fn wire(&self) -> Wire {
        Wire::new(self.connect.clone(), self.settings.patience)
    }

    /// Checks the tables and starts to listen, once; again if the runtime that listened is gone.
    pub(super) async fn ready(&self) -> Result<()> {
        let _one_at_a_time = self.ready.lock().await;
        let running = |task: &tokio::task::JoinHandle<()>| !task.is_finished();
        if self.listener.lock().as_ref().is_some_and(running) {
            return Ok(());
        }
        let mut wire = self.wire();
        let prepared = self.prepare(&mut wire, false).await;
        prepared.map_err(|trouble| trouble.at(Step::Open, self.tables().dialect))?;
        let task = listen::start(self.this.clone(), self, &self.address, &mut wire).await;
        *self.listener.lock() = Some(task);
        self.names.keep(wire);
        Ok(())
    }

    /// Tells the sessions of this process.
    pub(super) fn tell(&self, changes: &[Change], evicted: Option<&Ended>) {
        for change in changes {
            self.deliver(change.session, change.event(evicted));
        }
    }

    /// Takes a piece of mail: only a role that may write the tables can have sent it.
    pub(super) fn hear(&self, body: &str) {
        match post::read(body) {
            Some((session, event)) => self.deliver(session, event),
            None => tracing::debug!("a message that is not ours was ignored"),
        }
    }

    /// Takes a notification. Every role of the database can send one, so the tables are asked before it is believed.
    pub(super) fn doubt(&self, body: &str) {
        match post::read(body) {
            Some((session, Event::Wanted(claim))) if self.watch.key(claim).is_some() => {
                self.deliver(session, Event::Wanted(claim));
            }
            Some((session, event)) => self.doubts.add(&self.watch, session, event),
            None => tracing::debug!("a message that is not ours was ignored"),
        }
    }

    pub(super) fn deliver(&self, session: SessionId, event: Event) {
        let inbox = self.inboxes.lock().get(&session).cloned();
        if let Some(inbox) = inbox {
            self.watch.event(&event);
            inbox.deliver(event);
        }
    }

    pub(super) fn enter(&self, session: SessionId, inbox: Inbox) {
        let _ = self.inboxes.lock().insert(session, inbox);
    }

    pub(super) fn leave(&self, session: SessionId) {
        drop(self.inboxes.lock().remove(&session));
    }

    pub(super) fn closed(&self, step: Step) -> Error {
        Error::closed(step).on(self.tables().dialect.word())
    }

    /// What all sessions of this process had is void.
    pub(super) fn down(&self, why: &str) {
        let inboxes: Vec<_> = self.inboxes.lock().values().cloned().collect();
        self.watch.clear();
        self.known.clear();
        for inbox in inboxes {
            inbox.deliver(Event::Down(why.to_owned()));
        }
    }

    /// Does an operation until it is done, or until it is clear that it cannot be, or until its caller is gone.
    pub(super) async fn persist(
        &self,
        op: &Op,
        wire: &mut Wire,
        abandoned: &(dyn Fn() -> bool + Send + Sync),
    ) -> Result<Answer> {
        let clock = Clock::boot();
        let end = clock.now().saturating_add(PATIENCE);
        // Whether an answer was lost: what broke may have been done.
        let (mut lost, mut made) = (false, false);
        // A look of an engine without a session is the first to name the tables.
        if !self.is_pinned() {
            let prepared = self.prepare(wire, false).await;
            prepared.map_err(|trouble| trouble.at(op.step(), self.tables().dialect))?;
        }
        loop {
            let up = wire.is_up();
            let trouble = match op.perform(self, wire, lost).await {
                Ok(Answer::Standings(none)) if none.is_empty() && op.step() == Step::Claim => {
                    continue;
                }
                Ok(Answer::Released(Release::Gone)) if lost => return Err(self.released_or_lost()),
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            match trouble.what {
                What::Moved => self.down(&trouble.message),
                _ if abandoned() => {}
                What::Again if clock.now() < end => {
                    pause().await;
                    continue;
                }
                // The server may have closed a connection that was idle, or may have been started anew.
                What::Broken if up && !lost => {
                    lost = true;
                    continue;
                }
                What::Missing if !made => {
                    made = true;
                    let prepared = self.prepare(wire, true).await;
                    prepared.map_err(|trouble| trouble.at(op.step(), self.tables().dialect))?;
                    continue;
                }
                _ => {}
            }
            let error = trouble.at(op.step(), self.tables().dialect);
            if !lost && !error.may_have_happened() {
                op.forget(self);
            }
            return Err(if lost { error.perhaps() } else { error });
        }
    }

    fn released_or_lost(&self) -> Error {
        let what = "the connection broke before the answer came, and the claim is no longer in line: \
             the release took it out, or it had ended before";
        let error = Error::new(ErrorKind::Unavailable, Step::Release, what);
        error.on(self.tables().dialect.word()).perhaps()
    }
}

/// Lets the one that is in the way finish, and those that wait for it come back at different moments.
pub(super) async fn pause() {
    let micros = rand::random_range(500..8_000);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}

impl Drop for World {
    /// The task that listens waits for what may never come, and its connection with it.
    fn drop(&mut self) {
        if let Some(task) = self.listener.lock().take() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({})", self.settings.location)
    }
}
