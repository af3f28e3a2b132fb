//! The task that keeps a connection: makes it, looks after it, makes it again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use super::super::error::Trouble;
use super::connection::{Channel, Conn, Greeting, Hear, Known, silent};
use super::mux::Driver;
use super::resp::Call;
use super::sentinel;
use super::server::{Common, ServerShared, State, Unasked};
use super::stream::Address;
use crate::clock::{Clock, micros};

pub(super) struct Keeper {
    /// Where to connect; none for where the configuration leads.
    pub(super) fixed: Option<Address>,
    pub(super) common: Common,
    pub(super) tell: watch::Sender<State>,
    pub(super) shared: Arc<ServerShared>,
}

/// A connection that is in use.
struct Live {
    conn: Conn,
    driver: Driver,
    greeting: Arc<Greeting>,
    address: Address,
    listens: BTreeSet<Channel>,
}

/// A server that comes back is found within the longest pause and a half.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(300);

/// A connection that is not used is asked whether it is still one after so many times the patience: a router on the
/// way forgets connections that are silent.
const IDLE: u32 = 8;

impl Keeper {
    pub(super) async fn run(self) {
        let (mut pause, mut earlier) = (SHORTEST_PAUSE, None);
        loop {
            let why = match self.connect(earlier.as_ref()).await {
                Ok(live) => {
                    pause = SHORTEST_PAUSE;
                    earlier = live.conn.known(&live.greeting);
                    // Before callers see the connection: a call that is sent at once must count as unseen, or its
                    // silence is noticed only once the connection is idle.
                    let seen = self.shared.calls.load(Ordering::Relaxed);
                    let up = State::Up(live.conn.clone(), live.greeting.clone());
                    let _ = self.tell.send_replace(up);
                    self.missed();
                    self.keep(live, seen).await
                }
                Err(trouble) => trouble,
            };
            let before = self.tell.send_replace(State::Down(why.clone()));
            if matches!(before, State::Up(..)) {
                tracing::warn!(%why, "the connection ended");
                self.missed();
            }
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>())).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn missed(&self) {
        (self.common.hear)(Unasked::Missed);
    }

    /// Each step has its own time.
    async fn connect(&self, earlier: Option<&Known>) -> Result<Live, Trouble> {
        let target = sentinel::target(&self.common.config, self.fixed.as_ref()).await?;
        let told = self.common.hear.clone();
        let hear: Hear =
            Arc::new(move |channel, message| told(Unasked::Message { channel, message }));
        let (conn, mut driver) = Conn::open(&target, hear).await?;
        let listens = self.shared.channels.lock().clone();
        let begin = async {
            let config = &self.common.config;
            let greeting = conn.greet(&mut driver, self.common.script, config).await?;
            if let Some(earlier) = earlier {
                conn.succeed(&mut driver, &greeting, earlier).await?;
            }
            conn.subscribe(&mut driver, listens.iter()).await?;
            Ok(Arc::new(greeting))
        };
        let begun = tokio::time::timeout(target.patience, begin).await;
        let greeting = begun.unwrap_or_else(|_| Err(silent(&target.address)));
        Ok(Live {
            greeting: greeting.map_err(|trouble: Trouble| trouble.from(&target.address))?,
            address: target.address,
            conn,
            driver,
            listens,
        })
    }

    /// Moves the bytes until the connection ends, and tells its callers why it did. A silent server is noticed.
    async fn keep(&self, mut live: Live, seen: u64) -> Trouble {
        let why = match self.look_after(&mut live, seen).await {
            Trouble::Down(why) => why,
            other => other.to_string(),
        };
        live.conn.end(&why);
        Trouble::Down(why).from(&live.address)
    }

    /// `seen` of the calls are known to be answered.
    async fn look_after(&self, live: &mut Live, mut seen: u64) -> Trouble {
        let patience = self.common.config.patience;
        let (clock, mut tick) = (Clock::boot(), tokio::time::interval(patience / 2));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked = clock.now();
        loop {
            tokio::select! {
                why = &mut live.driver => return Trouble::Down(why),
                () = self.shared.retire.notified() => return Trouble::Down("another connection is made".to_owned()),
                () = self.shared.rechannel.notified() => match self.rechannel(live).await {
                    Ok(()) => continue,
                    Err(trouble) => return trouble,
                },
                _ = tick.tick() => {}
            }
            let calls = self.shared.calls.load(Ordering::Relaxed);
            if calls == seen && clock.now() - asked < micros(patience * IDLE) {
                continue;
            }
            (seen, asked) = (calls, clock.now());
            let answered = tokio::select! {
                why = &mut live.driver => return Trouble::Down(why),
                answered = self.answers(&live.conn) => answered,
            };
            if !answered {
                return Trouble::Down("the server does not answer".to_owned());
            }
        }
    }

    /// Listens where it did not yet. Messages sent there meanwhile were missed.
    async fn rechannel(&self, live: &mut Live) -> Result<(), Trouble> {
        let now = self.shared.channels.lock().clone();
        let more = now.difference(&live.listens);
        let patience = self.common.config.patience;
        let subscribed = live.conn.subscribe(&mut live.driver, more);
        let done = tokio::time::timeout(patience, subscribed).await;
        done.unwrap_or(Err(Trouble::Silent))?;
        live.listens = now;
        self.missed();
        Ok(())
    }

    /// Whether the server answers: this request within its time, or others meanwhile. Time in which this process
    /// itself stood still does not count: the answer may lie there unread.
    async fn answers(&self, conn: &Conn) -> bool {
        let ping = [Call::new("PING")];
        let mut asked = std::pin::pin!(conn.send(&ping));
        let mut before = self.shared.answers.load(Ordering::Relaxed);
        let (clock, patience) = (Clock::boot(), self.common.config.patience / 2);
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
