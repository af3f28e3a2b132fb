//! A connection to one server that is made again whenever it ends.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use super::error::Trouble;
use super::pipe::{CLOSED, Hear};
use super::resp::{Call, Reply};
use super::wire::{Channel, Conn, Driver, Target};
use crate::clock::{Clock, micros};

/// Where a link leads. Asked again for every connection: after a failover it is another server.
#[async_trait::async_trait]
pub(super) trait Dial: fmt::Debug + Send + Sync + 'static {
    async fn target(&self) -> Result<Target, Trouble>;
}

/// What a link tells its owner.
pub(super) trait Owner: Send + Sync + 'static {
    /// What to say first on every connection.
    fn greeting(&self) -> Vec<Call>;
    /// Where to listen.
    fn channels(&self, target: &Target) -> Vec<Channel>;
    /// What the server answered to the greeting; a trouble ends the connection.
    fn greeted(&self, replies: Vec<Reply>) -> Result<(), Trouble>;
    /// Whether it joins channels while the connection is in use. Only a server that pushes lets it.
    fn joins_later(&self) -> bool {
        false
    }
    /// A message on a channel.
    fn heard(&self, channel: &[u8], message: &[u8]);
    /// A connection ended, or another began: messages may have been missed.
    fn missed(&self);
}

/// One server, however often the connection to it has to be made again.
pub(super) struct Link {
    state: watch::Receiver<State>,
    shared: Arc<LinkShared>,
    task: AbortHandle,
    pub(super) patience: Duration,
}

#[derive(Debug, Default)]
struct LinkShared {
    /// Ends the connection there is.
    retire: Notify,
    /// Calls so far: the connection is looked after while there are any.
    calls: AtomicU64,
    /// Answers so far: a server that answers is there, however long the line of questions is.
    answers: AtomicU64,
}

#[derive(Debug, Clone)]
enum State {
    /// Not tried yet.
    New,
    Up(Conn),
    Down(Trouble),
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Link {
    /// Starts the task that keeps the connection.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(super) fn start(
        dial: Arc<dyn Dial>,
        owner: Weak<dyn Owner>,
        patience: Duration,
    ) -> Arc<Self> {
        let (tell, state) = watch::channel(State::New);
        let shared = Arc::<LinkShared>::default();
        let keeper = Keeper {
            dial,
            owner,
            patience,
            tell,
            shared: shared.clone(),
        };
        let task = tokio::spawn(keeper.run()).abort_handle();
        Arc::new(Self {
            state,
            shared,
            task,
            patience,
        })
    }

    /// Waits for the first connection, or says why there is none.
    pub(super) async fn ready(&self) -> Result<(), Trouble> {
        let mut state = self.state.clone();
        let settled = state.wait_for(|state| !matches!(state, State::New)).await;
        match settled.as_deref() {
            Ok(State::Up(_)) => Ok(()),
            Ok(State::Down(why)) => Err(why.clone()),
            Ok(State::New) | Err(_) => Err(stopped()),
        }
    }

    /// Sends calls in one go and answers for each. Waits for a connection, but not for ever.
    pub(super) async fn send(&self, calls: &[Call]) -> Result<Vec<Reply>, Trouble> {
        let conn = match self.conn() {
            Some(conn) => conn,
            // In a box, as all that is rare: otherwise every call would be large to move.
            None => Box::pin(self.wait_for_conn()).await?,
        };
        let _ = self.shared.calls.fetch_add(1, Ordering::Relaxed);
        let sent = conn.send(calls).await;
        let _ = self.shared.answers.fetch_add(1, Ordering::Relaxed);
        sent
    }

    fn conn(&self) -> Option<Conn> {
        match &*self.state.borrow() {
            State::Up(conn) => Some(conn.clone()),
            State::New | State::Down(_) => None,
        }
    }

    async fn wait_for_conn(&self) -> Result<Conn, Trouble> {
        let mut state = self.state.clone();
        let settled = |state: &State| match state {
            State::Up(_) => true,
            State::Down(why) => why.is_final(),
            State::New => false,
        };
        let waited = tokio::time::timeout(self.patience, state.wait_for(settled)).await;
        match waited.as_ref().map(|state| state.as_deref()) {
            Ok(Ok(State::Up(conn))) => Ok(conn.clone()),
            Ok(Err(_)) => Err(stopped()),
            _ => Err(match &*self.state.borrow() {
                State::Down(why) => why.clone(),
                _ => Trouble::Down("there is no connection".to_owned()),
            }),
        }
    }

    /// Ends the connection, so that another is made: to another server, or with other subscriptions.
    pub(super) fn renew(&self) {
        self.shared.retire.notify_one();
    }
}

fn stopped() -> Trouble {
    Trouble::Down("the runtime that kept the connection has ended".to_owned())
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

/// The task of a link.
struct Keeper {
    dial: Arc<dyn Dial>,
    owner: Weak<dyn Owner>,
    patience: Duration,
    tell: watch::Sender<State>,
    shared: Arc<LinkShared>,
}

impl Keeper {
    async fn run(self) {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let connected = tokio::time::timeout(self.patience, self.connect()).await;
            let connected =
                connected.unwrap_or_else(|_| Err(Trouble::Down("it does not answer".to_owned())));
            let why = match connected {
                Ok((conn, driver)) => {
                    pause = SHORTEST_PAUSE;
                    let _ = self.tell.send_replace(State::Up(conn.clone()));
                    self.missed();
                    self.keep(conn, driver).await
                }
                Err(trouble) => trouble,
            };
            let was_up = matches!(
                self.tell.send_replace(State::Down(why.clone())),
                State::Up(_)
            );
            if was_up {
                tracing::warn!(?why, "the connection ended");
                self.missed();
            }
            if self.owner.strong_count() == 0 {
                return;
            }
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn missed(&self) {
        if let Some(owner) = self.owner.upgrade() {
            owner.missed();
        }
    }

    async fn connect(&self) -> Result<(Conn, Driver), Trouble> {
        let target = self.dial.target().await?;
        let owner = self.owner.clone();
        let hear: Hear = Arc::new(move |channel, message| {
            if let Some(owner) = owner.upgrade() {
                owner.heard(channel, message);
            }
        });
        let (conn, mut driver) = Conn::open(&target, hear.clone()).await?;
        let owner = self.owner.upgrade().ok_or_else(stopped)?;
        if owner.joins_later() && !conn.pushes {
            let what = "this layout needs a server that speaks RESP3: use Redis 6 or newer, without a proxy";
            return Err(Trouble::Unfit(what.to_owned()));
        }
        owner.greeted(conn.first(&mut driver, &owner.greeting()).await?)?;
        let channels = owner.channels(&target);
        let driver = conn.listen(driver, &target, &channels, hear).await?;
        Ok((conn, driver))
    }

    /// Moves the bytes until the connection ends. While it is used, a silent server is noticed.
    async fn keep(&self, conn: Conn, mut driver: Driver) -> Trouble {
        let mut tick = tokio::time::interval(self.patience / 2);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut seen = self.shared.calls.load(Ordering::Relaxed);
        loop {
            tokio::select! {
                () = &mut driver => return Trouble::Down(CLOSED.to_owned()),
                () = self.shared.retire.notified() => return Trouble::Down("another connection is made".to_owned()),
                _ = tick.tick() => {}
            }
            let calls = self.shared.calls.load(Ordering::Relaxed);
            if calls == seen {
                continue;
            }
            seen = calls;
            let answered = tokio::select! {
                () = &mut driver => return Trouble::Down(CLOSED.to_owned()),
                answered = self.answers(&conn) => answered,
            };
            if !answered {
                return Trouble::Down("the server does not answer".to_owned());
            }
        }
    }

    /// Whether the server answers: this question within its time, or others meanwhile. Time in which this process
    /// itself stood still does not count: the answer may lie there unread.
    async fn answers(&self, conn: &Conn) -> bool {
        let ping = [Call::new("PING")];
        let mut asked = std::pin::pin!(conn.send(&ping));
        let mut before = self.shared.answers.load(Ordering::Relaxed);
        let (clock, patience) = (Clock::boot(), self.patience / 2);
        loop {
            let from = clock.now();
            if tokio::time::timeout(patience, &mut asked).await.is_ok() {
                return true;
            }
            let stood_still = clock.now() - from > micros(patience * 3 / 2);
            let now = self.shared.answers.load(Ordering::Relaxed);
            if now == before && !stood_still {
                return false;
            }
            before = now;
        }
    }
}
