//! Hearing what other processes did to the claims of this one.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::dialect::Dialect;
use super::op::Op;
use super::post::{self, Address};
use super::rows::Key;
use super::wire::{Heard, Listening, What, Wire};
use super::world::World;
use crate::claim::{ById, ClaimId};
use crate::engine::{Event, Standing};
use crate::sync::Shared;

/// How long a notification of our own may take before we look for mail instead.
const PROBE: Duration = Duration::from_secs(1);

/// How often idle rows are looked for.
const CLEAN: Duration = Duration::from_secs(600);

/// A process that holds and does not wait looks for mail this often: another process may want what it keeps.
const HOLDING: Duration = Duration::from_millis(100);

/// At most so many times the shortest pause, however far behind in the line.
const FAR: u32 = 10;

/// The claims of this process that may be in a line.
#[derive(Debug, Default)]
pub(super) struct Watch {
    claims: Shared<ById<ClaimId, Watched>>,
    sooner: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Watched {
    key: Key,
    /// How many are before it; 0 for one that holds, and for one whose first answer has not come.
    ahead: u32,
}

impl Watch {
    /// A claim that is about to be asked for.
    pub(super) fn add(&self, claim: ClaimId, key: Key) {
        let mut claims = self.claims.lock();
        let _ = claims.entry(claim).or_insert(Watched { key, ahead: 0 });
    }

    /// The line of a claim that this process has.
    pub(super) fn key(&self, claim: ClaimId) -> Option<Key> {
        self.claims.lock().get(&claim).map(|watched| watched.key)
    }

    pub(super) fn standing(&self, claim: ClaimId, standing: Standing) {
        match standing {
            Standing::Held(_) => self.put(claim, 0),
            Standing::Waiting { ahead, .. } => self.put(claim, ahead.max(1)),
            Standing::Busy | Standing::Gone => self.gone(claim),
        }
    }

    pub(super) fn event(&self, event: &Event) {
        match event {
            Event::Granted(claim, _) => self.put(*claim, 0),
            Event::Ended(claim, _) => self.gone(*claim),
            Event::Wanted(_) | Event::Asked(_) | Event::Unsure | Event::Down(_) => {}
        }
    }

    pub(super) fn gone(&self, claim: ClaimId) {
        let _ = self.claims.lock().remove(&claim);
    }

    pub(super) fn clear(&self) {
        self.claims.lock().clear();
    }

    fn put(&self, claim: ClaimId, ahead: u32) {
        if let Some(watched) = self.claims.lock().get_mut(&claim) {
            watched.ahead = ahead;
        }
        if ahead > 0 {
            self.sooner.notify_one();
        }
    }

    /// How long until the next look, by the place of the claim that is nearest to the front.
    fn pause(&self, shortest: Duration) -> Option<Duration> {
        let claims = self.claims.lock();
        let ahead = claims.values().map(|watched| watched.ahead);
        let nearest = ahead.filter(|ahead| *ahead > 0).min();
        match nearest {
            Some(ahead) => Some(shortest * ahead.min(FAR)),
            None if claims.is_empty() => None,
            None => Some(HOLDING),
        }
    }
}

/// Decides how this process is told things, and begins to listen.
#[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
pub(super) async fn start(
    this: Weak<World>,
    world: &World,
    address: &OnceLock<Address>,
    wire: &mut Wire,
) -> JoinHandle<()> {
    let known = address.get().copied();
    let wanted = world.settings.notify && known.is_none_or(|address| !address.looks());
    if wanted {
        let candidate = known.unwrap_or_else(|| Address::random(false));
        let first = probe(&this, world, candidate, wire).await;
        if first.is_some() || known.is_some() {
            let _ = address.set(candidate);
            return tokio::spawn(async move {
                // Together: the engine looks whether this task is there.
                let _ = tokio::join!(
                    listen(this.clone(), candidate, first),
                    super::doubt::settle(this)
                );
            });
        }
        tracing::info!(
            "notifications do not arrive here (a pooler between?): looking for mail instead"
        );
    }
    let _ = address.set(Address::random(true));
    tokio::spawn(look(this))
}

/// Listens, and sends itself one notification on another connection: behind a pooler it does not arrive.
async fn probe(
    this: &Weak<World>,
    world: &World,
    address: Address,
    wire: &mut Wire,
) -> Option<Listening> {
    let (tell, told) = oneshot::channel();
    let tell = Shared::from(Some(tell));
    let usual = hearer(this.clone());
    let heard: Heard = Arc::new(move |body| match body {
        "probe" => drop(tell.lock().take().map(|tell| tell.send(()))),
        body => usual(body),
    });
    let channel = address.channel();
    let mut listening = world.connect.listen(&channel, heard).await.ok()??;
    let probe = format!("SELECT pg_notify('{channel}', 'probe')");
    drop(wire.run(&probe).await);
    tokio::select! {
        _ = told => Some(listening),
        () = &mut listening => None,
        () = tokio::time::sleep(PROBE) => None,
    }
}

fn hearer(world: Weak<World>) -> Heard {
    Arc::new(move |body| {
        if let Some(world) = world.upgrade() {
            world.doubt(body);
        }
    })
}

/// Keeps listening. What is missed while the connection is down the next heartbeat tells.
async fn listen(world: Weak<World>, address: Address, mut first: Option<Listening>) {
    let mut clean = tokio::time::interval(CLEAN);
    clean.reset();
    loop {
        let mut listening: Listening = match first.take() {
            Some(listening) => listening,
            None => {
                tokio::time::sleep(Duration::from_millis(rand::random_range(50..500))).await;
                let Some(alive) = world.upgrade() else { return };
                let connect = alive.connect.clone();
                drop(alive);
                match connect
                    .listen(&address.channel(), hearer(world.clone()))
                    .await
                {
                    Ok(Some(listening)) => listening,
                    _ => continue,
                }
            }
        };
        loop {
            tokio::select! {
                () = &mut listening => break,
                _ = clean.tick() => {}
            }
            let Some(alive) = world.upgrade() else { return };
            drop(alive.ask(&alive.names, Vec::new(), Op::Clean).await);
        }
        if world.upgrade().is_none() {
            return;
        }
    }
}

/// Looks for mail as often as the claims of this process need it. One look, however many claims.
async fn look(world: Weak<World>) {
    let mut clean = tokio::time::interval(CLEAN);
    clean.reset();
    let mut wire: Option<Wire> = None;
    loop {
        let Some(alive) = world.upgrade() else { return };
        let shortest = shortest(alive.tables().dialect);
        let pause = alive.watch.pause(shortest).unwrap_or(CLEAN);
        let pause = pause.mul_f64(rand::random_range(0.75..1.25));
        let sooner = async {
            // The engine is not kept alive by a task that only waits for it.
            tokio::select! {
                () = alive.watch.sooner.notified() => {}
                () = tokio::time::sleep(pause.min(Duration::from_secs(1))) => {}
            }
        };
        tokio::select! {
            () = sooner => {}
            _ = clean.tick() => drop(alive.ask(&alive.names, Vec::new(), Op::Clean).await),
        }
        if alive.watch.pause(shortest).is_none() {
            continue;
        }
        let wire = wire.get_or_insert_with(|| alive.wire());
        if let Err(trouble) = post::collect(&alive, wire).await {
            if trouble.what == What::Moved {
                alive.down(&trouble.message);
            }
            tracing::debug!(trouble.message, "no mail");
            tokio::time::sleep(HOLDING).await;
        }
    }
}

const fn shortest(dialect: Dialect) -> Duration {
    match dialect {
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => Duration::from_millis(1),
        #[cfg(any(feature = "postgres", feature = "mysql"))]
        _ => Duration::from_millis(5),
    }
}
