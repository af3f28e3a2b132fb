//! One line per name inside this process: tasks take turns at a grant, and only the front one goes to the engine.
//!
//! A grant is handed from task to task in memory, without bound while nobody else wants the name and within a
//! [`Bound`] while somebody does. Readers share a read grant under the same bound. Each turn has its own fence.
//!
//! Everything half-done is a value whose `Drop` passes it on: a [`Turn`] ends, a [`Front`] lets the next task go to
//! the engine. So a future may be dropped at any await.

mod ask;
mod local;
mod owner;
mod state;
mod terms;
mod turn;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) use self::ask::Ask;
pub(crate) use self::local::Local;
pub use self::owner::Owner;
pub(crate) use self::terms::{Reentrant, Terms};
pub(crate) use self::turn::Turn;
use crate::error::Result;
use crate::name::Name;
use crate::session::Keeper;
use crate::sync::Shared;

/// How long a grant may stay in one process while another waits for it: so many turns, or so much time, whichever
/// ends first.
///
/// ```
/// use leasehold::Bound;
/// use std::time::Duration;
/// assert_eq!(Bound::default(), Bound::new(64, Duration::from_millis(10)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// Turns in a row.
    pub turns: u32,
    /// Time since the grant.
    pub time: Duration,
}

impl Bound {
    /// At most `turns` turns and at most `time`.
    pub const fn new(turns: u32, time: Duration) -> Self {
        Self { turns, time }
    }
}

impl Default for Bound {
    fn default() -> Self {
        Self::new(64, Duration::from_millis(10))
    }
}

/// The lines of this process, by name.
pub(crate) struct Turns {
    keeper: Arc<Keeper>,
    bound: Bound,
    registry: Arc<Registry>,
}

pub(crate) type Registry = Shared<HashMap<Box<str>, Weak<Local>>>;

impl Turns {
    pub(crate) fn new(keeper: Arc<Keeper>, bound: Bound) -> Self {
        Self {
            keeper,
            bound,
            registry: Arc::default(),
        }
    }

    /// The line of a name; it lives as long as somebody uses it. A name that is in use is known to be good.
    pub(crate) fn local(&self, name: &str) -> Result<Arc<Local>> {
        let mut locals = self.registry.lock();
        if let Some(local) = locals.get(name).and_then(Weak::upgrade) {
            return Ok(local);
        }
        let local = Local::new(
            Name::new(name)?,
            self.keeper.clone(),
            self.bound,
            self.registry.clone(),
        );
        let _ = locals.insert(name.into(), Arc::downgrade(&local));
        Ok(local)
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// Gives back every grant that nobody uses.
    pub(crate) fn settle(&self) {
        let locals: Vec<_> = self
            .registry
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        locals.iter().for_each(|local| local.give_up_idle());
    }
}
