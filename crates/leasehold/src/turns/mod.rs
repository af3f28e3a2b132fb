//! One line per name inside this process: tasks take turns at a grant, and only the front one goes to the engine.
//!
//! A grant is handed from task to task in memory, without bound while nobody else wants the name and within a
//! [`Bound`] while somebody does. Readers share a read grant under the same bound. Each turn has its own fence.
//!
//! Everything half-done is a value whose `Drop` passes it on: a [`Turn`] ends, a [`Front`] lets the next task go to
//! the engine. So a future may be dropped at any await.

mod ask;
mod finish;
mod local;
mod owner;
mod registry;
mod state;
mod terms;
mod turn;

use std::sync::{Arc, Weak};
use std::time::Duration;

pub(crate) use self::ask::Ask;
pub(crate) use self::local::Local;
pub use self::owner::Owner;
use self::registry::Registry;
pub(crate) use self::terms::{Reentrant, Terms};
pub(crate) use self::turn::Turn;
use crate::error::Result;
use crate::name::Name;
use crate::session::Keeper;

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

/// The lines of this process, by name. It lives as long as a client or a handle; then what lingers is given back.
pub(crate) struct Turns {
    keeper: Arc<Keeper>,
    bound: Bound,
    registry: Arc<Registry>,
}

impl Turns {
    pub(crate) fn new(keeper: Arc<Keeper>, bound: Bound) -> Arc<Self> {
        let registry = Arc::<Registry>::default();
        let home: Weak<Registry> = Arc::downgrade(&registry);
        keeper.set_home(home);
        Arc::new(Self {
            keeper,
            bound,
            registry,
        })
    }

    /// The line of a name; it lives as long as a task uses it. A name that is in use is known to be good.
    pub(crate) fn local(self: &Arc<Self>, name: &str) -> Result<Arc<Local>> {
        self.registry.find_or_add(name, || {
            let (name, keeper) = (Name::new(name)?, self.keeper.clone());
            let (registry, turns) = (self.registry.clone(), Arc::downgrade(self));
            Ok(Local::new(name, keeper, self.bound, registry, turns))
        })
    }

    pub(crate) fn keeper(&self) -> &Arc<Keeper> {
        &self.keeper
    }

    /// Ends every wait inside this process, and gives back every grant without a user.
    pub(crate) fn close(&self) {
        for local in self.registry.all() {
            local.close();
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        for local in self.registry.all() {
            local.give_up_idle();
        }
    }
}
