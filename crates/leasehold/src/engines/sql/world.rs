//! What the sessions of one engine share: the tables, the connections, and who is told what.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use super::listen::{self, Watch};
use super::op::{Answer, Op};
use super::post::{self, Address};
use super::quick::Quick;
use super::rows::Known;
use super::tables::Tables;
use super::wire::{Connect, What, Wire};
use crate::claim::{ById, SessionId};
use crate::clock::{Clock, Micros};
use crate::engine::{Ended, Event, Inbox};
use crate::error::{Error, ErrorKind, Result, Step};
use crate::line::Change;
use crate::sync::Shared;

/// How an engine was asked to behave.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// How many connections do the work.
    pub(super) lanes: usize,
    /// How long one packet may take.
    pub(super) patience: Duration,
    /// Whether missing tables are created.
    pub(super) create: bool,
    /// Whether to be notified where the database can.
    pub(super) notify: bool,
    /// The clock of a database that has none of its own, or of a test.
    pub(super) clock: Option<Clock>,
    pub(super) location: String,
}

pub(super) struct World {
    pub(super) tables: Tables,
    pub(super) quick: Quick,
    pub(super) known: Known,
    pub(super) connect: Arc<dyn Connect>,
    pub(super) settings: Settings,
    pub(super) watch: Watch,
    lanes: Vec<Lane>,
    address: OnceLock<Address>,
    ready: tokio::sync::Mutex<()>,
    listener: Shared<Option<tokio::task::JoinHandle<()>>>,
    inboxes: Shared<ById<SessionId, Inbox>>,
    this: Weak<Self>,
}

/// One connection and what waits for it, in order.
#[derive(Debug, Default)]
struct Lane(Shared<Option<mpsc::UnboundedSender<Job>>>);

type Job = (Op, oneshot::Sender<Result<Answer>>);

/// How often somebody may be in the way before an operation gives up.
pub(super) const PATIENCE: Micros = 10_000_000;

impl World {
    pub(super) fn new(tables: Tables, connect: Arc<dyn Connect>, settings: Settings) -> Arc<Self> {
        let now = match settings.clock {
            None => tables.dialect.now(),
            Some(_) => None,
        };
        Arc::new_cyclic(|this| Self {
            quick: Quick::new(&tables, now),
            known: Known::default(),
            tables,
            connect,
            watch: Watch::default(),
            lanes: (0..settings.lanes.max(1))
                .map(|_| Lane::default())
                .collect(),
            settings,
            address: OnceLock::new(),
            ready: tokio::sync::Mutex::default(),
            listener: Shared::default(),
            inboxes: Shared::default(),
            this: this.clone(),
        })
    }

    /// The time as a statement asks for it.
    pub(super) fn now(&self) -> String {
        match (&self.settings.clock, self.tables.dialect.now()) {
            (None, Some(now)) => now.to_owned(),
            (Some(clock), _) => clock.now().to_string(),
            (None, None) => Clock::boot().now().to_string(),
        }
    }

    /// The time as a quick statement is told it, unless it asks the database.
    pub(super) fn bound_now(&self) -> Option<Micros> {
        let clock = self.settings.clock.as_ref();
        clock.map(Clock::now)
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
        prepared.map_err(|trouble| trouble.at(Step::Open, self.tables.dialect))?;
        let task = listen::start(self.this.clone(), self, &self.address, &mut wire).await;
        *self.listener.lock() = Some(task);
        Ok(())
    }

    /// Does an operation on a name's connection. What is asked about one name is done in the order it was asked, also
    /// if nobody waits for the answer any more.
    pub(super) async fn ask(&self, lane: usize, op: Op) -> Result<Answer> {
        let step = op.step();
        let (tell, told) = oneshot::channel();
        self.send(lane, (op, tell));
        told.await.unwrap_or_else(|_| {
            let error = Error::new(
                ErrorKind::Closed,
                step,
                "the runtime of this engine is gone",
            );
            Err(error.on(self.tables.dialect.word()).perhaps())
        })
    }

    /// The same beside the lanes of the names, so that heartbeats do not wait behind a crowd.
    pub(super) async fn ask_aside(&self, op: Op) -> Result<Answer> {
        self.ask(self.lanes.len() - 1, op).await
    }

    /// How many connections names are spread over.
    pub(super) fn lanes(&self) -> usize {
        self.lanes.len().saturating_sub(1).max(1)
    }

    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    fn send(&self, lane: usize, mut job: Job) {
        let mut sender = self.lanes[lane].0.lock();
        if let Some(open) = &*sender {
            match open.send(job) {
                Ok(()) => return,
                // The runtime it ran on is gone.
                Err(mpsc::error::SendError(back)) => job = back,
            }
        }
        let (open, jobs) = mpsc::unbounded_channel();
        drop(open.send(job));
        drop(tokio::spawn(serve(self.this.clone(), self.wire(), jobs)));
        *sender = Some(open);
    }

    /// Tells the sessions of this process.
    pub(super) fn tell(&self, changes: &[Change], evicted: Option<&Ended>) {
        for change in changes {
            self.deliver(change.session, change.event(evicted));
        }
    }

    /// Takes what another process told.
    pub(super) fn hear(&self, body: &str) {
        match post::read(body) {
            Some((session, event)) => self.deliver(session, event),
            None => tracing::debug!("a message that is not ours was ignored"),
        }
    }

    fn deliver(&self, session: SessionId, event: Event) {
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

    /// Does an operation until it is done, or until it is clear that it cannot be.
    async fn persist(&self, op: &Op, wire: &mut Wire) -> Result<Answer> {
        let clock = Clock::boot();
        let end = clock.now().saturating_add(PATIENCE);
        let (mut revived, mut made) = (false, false);
        loop {
            let up = wire.is_up();
            let trouble = match op.perform(self, wire).await {
                Ok(Answer::Standings(none)) if none.is_empty() && op.step() == Step::Claim => {
                    continue;
                }
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            match trouble.what {
                What::Again if clock.now() < end => pause().await,
                // The server may have closed a connection that was idle, or may have been started anew.
                What::Broken if up && !revived => revived = true,
                What::Missing if !made => {
                    made = true;
                    let prepared = self.prepare(wire, true).await;
                    prepared.map_err(|trouble| trouble.at(op.step(), self.tables.dialect))?;
                }
                _ => {
                    let error = trouble.at(op.step(), self.tables.dialect);
                    // What broke the first time may have been done.
                    return Err(if revived { error.perhaps() } else { error });
                }
            }
        }
    }
}

/// Lets whoever is in the way finish, and those who wait for it come back at different moments.
pub(super) async fn pause() {
    let micros = rand::random_range(500..8_000);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}

/// Serves one connection until the engine or the runtime is gone.
async fn serve(world: Weak<World>, mut wire: Wire, mut jobs: mpsc::UnboundedReceiver<Job>) {
    while let Some((op, tell)) = jobs.recv().await {
        let Some(world) = world.upgrade() else {
            return;
        };
        let answer = world.persist(&op, &mut wire).await;
        // Nobody may wait any more; then a release follows.
        drop(tell.send(answer));
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "World({})", self.settings.location)
    }
}
