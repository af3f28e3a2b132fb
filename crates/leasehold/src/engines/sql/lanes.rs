//! Who uses which connection when.
//!
//! What is asked about one name is done in the order it was asked, one at a time; names do not wait for each other
//! while connections are left, so a name that is stuck costs one connection. A call that is dropped while it waits for
//! its turn has done nothing and leaves nothing to do. Once it has begun it goes on to its end, because its packet is
//! under way; a new claim that has no caller any more is then taken back.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, oneshot};

use super::op::{Answer, Op};
use super::rows::Key;
use super::wire::Wire;
use super::world::World;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Shared;

/// Some connections, each used by one operation at a time; the one that was used last is used first.
pub(super) struct Pool {
    room: Arc<Semaphore>,
    idle: Shared<Vec<Wire>>,
}

impl Pool {
    pub(super) fn of(connections: usize) -> Arc<Self> {
        Arc::new(Self {
            room: Arc::new(Semaphore::new(connections.max(1))),
            idle: Shared::default(),
        })
    }

    /// A connection, once one is free, and the room that it takes.
    pub(super) async fn wire(&self, world: &World) -> (Option<OwnedSemaphorePermit>, Wire) {
        let room = self.room.clone().acquire_owned().await.ok();
        (room, self.take(world))
    }

    fn take(&self, world: &World) -> Wire {
        let idle = self.idle.lock().pop();
        idle.unwrap_or_else(|| world.wire())
    }

    /// Takes a connection that is not used any more.
    pub(super) fn keep(&self, wire: Wire) {
        self.idle.lock().push(wire);
    }
}

/// The names that operations of this process are about.
#[derive(Debug, Default)]
pub(super) struct Turns(Shared<HashMap<Key, Arc<Mutex<()>>>>);

impl Turns {
    /// So many names are kept before those without an operation go.
    const MANY: usize = 256;

    async fn take(&self, key: Key) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock();
            if turns.len() >= Self::MANY {
                turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            turns.entry(key).or_default().clone()
        };
        turn.lock_owned().await
    }
}

impl World {
    /// Does an operation on some names, or beside them.
    ///
    /// In a task of its own: a caller that is not polled for a while must not keep a turn from others.
    #[expect(clippy::disallowed_methods, reason = "the engine's own event loop")]
    pub(super) async fn ask(&self, pool: &Arc<Pool>, keys: Vec<Key>, op: Op) -> Result<Answer> {
        let (step, word) = (op.step(), self.tables().dialect.word());
        let gone = || {
            let what = "the runtime that ran this call is gone";
            Err(Error::new(ErrorKind::Closed, step, what).on(word).perhaps())
        };
        let Some(world) = self.this() else {
            return gone();
        };
        let (tell, told) = oneshot::channel();
        drop(tokio::spawn(work(world, pool.clone(), keys, op, tell)));
        told.await.unwrap_or_else(|_| gone())
    }

    /// Waits for a turn on these names and for a connection.
    async fn turn(&self, pool: &Pool, mut keys: Vec<Key>) -> Option<Turn> {
        // In this order, so that two that want several do not wait for each other.
        keys.sort_unstable();
        keys.dedup();
        let mut turns = Vec::with_capacity(keys.len());
        for key in keys {
            turns.push(self.turns.take(key).await);
        }
        let room = pool.room.clone().acquire_owned().await.ok()?;
        Some((turns, room))
    }
}

type Turn = (Vec<OwnedMutexGuard<()>>, OwnedSemaphorePermit);

async fn work(
    world: Arc<World>,
    pool: Arc<Pool>,
    keys: Vec<Key>,
    mut op: Op,
    mut tell: oneshot::Sender<Result<Answer>>,
) {
    let turn = tokio::select! {
        biased;
        () = tell.closed() => None,
        turn = world.turn(&pool, keys) => turn,
    };
    // A caller that was gone before this has left nothing, and the session knows of no claim.
    if turn.is_none() || tell.is_closed() {
        return;
    }
    let mut wire = pool.take(&world);
    let answer = match op.begin(&world) {
        Some(answer) => answer,
        None => world.persist(&op, &mut wire, &|| tell.is_closed()).await,
    };
    // Before the answer: the next call of the same caller finds this connection, and makes none.
    pool.keep(wire);
    if let Err(answer) = tell.send(answer)
        && let Some(release) = op.undo(&answer)
    {
        let mut wire = pool.take(&world);
        drop(world.persist(&release, &mut wire, &|| false).await);
        pool.keep(wire);
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} free)", self.room.available_permits())
    }
}
