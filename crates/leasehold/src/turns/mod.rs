//! One queue per name inside this process: tasks take turns at a grant, and only the first of them goes to the engine.
//!
//! A grant is handed from task to task in memory, without bound while no other session wants the name and within a
//! [`TurnBound`] while one does. Readers share a read grant under the same bound. Each turn has its own fence.
//!
//! Everything half-done is a value whose `Drop` passes it on: a [`Turn`] ends, an `EngineTurn` lets the next task go to
//! the engine. So a future may be dropped at any await.

mod finish;
mod owner;
mod queue;
mod request;
mod state;
mod terms;
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use self::owner::Owner;
pub(crate) use self::queue::Queue;
pub(crate) use self::request::Request;
pub(crate) use self::terms::{Reentrant, Terms};
pub(crate) use self::turn::Turn;
use crate::error::Result;
use crate::name::Name;
use crate::session::{Grant, GrantObserver, Manager};
use crate::sync::Shared;

/// How long a grant may stay in one process while another waits for it: so many turns, or so much time, whichever
/// ends first.
///
/// ```
/// use leasehold::TurnBound;
/// use std::time::Duration;
/// assert_eq!(TurnBound::default(), TurnBound::new(64, Duration::from_millis(10)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TurnBound {
    /// Turns in a row.
    pub turns: u32,
    /// Time since the grant.
    pub time: Duration,
}

impl TurnBound {
    /// At most `turns` turns and at most `time`.
    pub const fn new(turns: u32, time: Duration) -> Self {
        Self { turns, time }
    }
}

impl Default for TurnBound {
    fn default() -> Self {
        Self::new(64, Duration::from_millis(10))
    }
}

/// The turns of one client. They live as long as a client or a handle; then what lingers is given back.
pub(crate) struct Turns {
    manager: Arc<Manager>,
    queues: Arc<Queues>,
}

impl Turns {
    /// `queues` are those that the manager tells of its grants.
    pub(crate) fn new(manager: Arc<Manager>, queues: Arc<Queues>) -> Arc<Self> {
        Arc::new(Self { manager, queues })
    }

    /// The queue of a name; it lives as long as a task uses it. A name that has a queue is known to be good.
    pub(crate) fn queue(self: &Arc<Self>, name: &str) -> Result<Arc<Queue>> {
        let mut queues = self.queues.0.lock();
        if let Some(queue) = queues.get(name).and_then(Weak::upgrade) {
            return Ok(queue);
        }
        let queue = Queue::new(Name::new(name)?, self);
        let _ = queues.insert(name.into(), Arc::downgrade(&queue));
        Ok(queue)
    }

    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// Ends every wait inside this process, and gives back every grant without a user.
    pub(crate) fn close(&self) {
        for queue in self.queues.all() {
            queue.close();
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        for queue in self.queues.all() {
            queue.release_idle();
        }
    }
}

/// The queues of one client, by name: each is here as long as a task or a grant uses it.
#[derive(Default)]
pub(crate) struct Queues(Shared<HashMap<Box<str>, Weak<Queue>>>);

impl Queues {
    fn all(&self) -> Vec<Arc<Queue>> {
        self.0.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Forgets a queue that is no longer used.
    fn forget(&self, name: &Name) {
        let mut queues = self.0.lock();
        let unused = |queue: &Weak<Queue>| queue.strong_count() == 0;
        // Another task may have made a new queue meanwhile.
        if queues.get(name.as_str()).is_some_and(unused) {
            drop(queues.remove(name.as_str()));
        }
    }
}

impl GrantObserver for Queues {
    // A grant in use keeps its queue alive: it is the one of that name.
    fn grant_changed(&self, grant: &Arc<Grant>) {
        let queue = {
            let queues = self.0.lock();
            queues
                .get(grant.claim.name.as_str())
                .and_then(Weak::upgrade)
        };
        if let Some(queue) = queue {
            queue.look(grant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::state::Wake;
    use super::*;
    use crate::claim::Mode;
    use crate::clock::Clock;
    use crate::engine::{Identity, Memory};
    use crate::error::{Error, ErrorKind, Step};

    async fn turns() -> Arc<Turns> {
        let clock = Clock::simulated();
        let engine = Memory::new(clock.clone());
        let who = Identity::of_this_process();
        let queues = Arc::<Queues>::default();
        let manager = Manager::open(&engine, &who, &clock, queues.clone()).await;
        Turns::new(manager.unwrap(), queues)
    }

    fn asks(lease: Duration) -> Request {
        let terms = Terms {
            lease,
            ..Terms::default()
        };
        Request::new(Mode::Mutex, true, &terms, Location::caller(), 0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_that_is_not_used_is_forgotten() {
        let turns = turns().await;
        let (one, same) = (turns.queue("x").unwrap(), turns.queue("x").unwrap());
        assert!(Arc::ptr_eq(&one, &same));
        drop(one);
        assert_eq!(turns.queues.0.lock().len(), 1);
        drop(same);
        assert_eq!(turns.queues.0.lock().len(), 0);
    }

    /// While another holds, however long that takes.
    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_dropped_leaves_no_place_behind() {
        let turns = turns().await;
        let queue = turns.queue("x").unwrap();
        let second = Duration::from_secs(1);
        let _held = queue.take(&asks(second)).await.unwrap().unwrap();
        for _ in 0..3 {
            let request = asks(second);
            let wait = queue.take(&request);
            assert!(tokio::time::timeout(second, wait).await.is_err());
            assert_eq!(queue.state.lock().waiting.len(), 0);
        }
    }

    /// No answer in time says nothing to a task that would have waited longer; every other error is one for all.
    #[tokio::test(start_paused = true)]
    async fn tasks_that_wait_longer_do_not_fail_with_one_that_waited_in_vain() {
        let turns = turns().await;
        let queue = turns.queue("x").unwrap();
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(5));
        let fail = |kind| {
            let mut state = queue.state.lock();
            let waits = [short, long].map(|lease| state.join(asks(lease)).1);
            drop(state);
            queue.fail_engine(&Error::new(kind, Step::Claim, "a test"), short);
            waits.map(|mut told| matches!(told.try_recv(), Ok(Wake::Failed(_))))
        };
        assert_eq!(fail(ErrorKind::Unavailable), [true, true]);
        assert_eq!(fail(ErrorKind::TimedOut), [true, false]);
    }
}
