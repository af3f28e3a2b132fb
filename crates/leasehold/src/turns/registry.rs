//! The lines of this process, by name.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::local::Local;
use crate::error::Result;
use crate::name::Name;
use crate::session::{Grant, Home};
use crate::sync::Shared;

/// A line is here as long as somebody uses it.
#[derive(Default)]
pub(super) struct Registry(Shared<HashMap<Box<str>, Weak<Local>>>);

impl Registry {
    fn find(&self, name: &str) -> Option<Arc<Local>> {
        self.0.lock().get(name).and_then(Weak::upgrade)
    }

    pub(super) fn find_or_add(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<Arc<Local>>,
    ) -> Result<Arc<Local>> {
        let mut locals = self.0.lock();
        if let Some(local) = locals.get(name).and_then(Weak::upgrade) {
            return Ok(local);
        }
        let local = make()?;
        let _ = locals.insert(name.into(), Arc::downgrade(&local));
        Ok(local)
    }

    pub(super) fn all(&self) -> Vec<Arc<Local>> {
        self.0.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Forgets a line that nobody uses any more.
    pub(super) fn forget(&self, name: &Name) {
        let mut locals = self.0.lock();
        let unused = |local: &Weak<Local>| local.strong_count() == 0;
        // Somebody may have come meanwhile and made a new line.
        if locals.get(name.as_str()).is_some_and(unused) {
            drop(locals.remove(name.as_str()));
        }
    }
}

impl Home for Registry {
    // Whoever uses a grant keeps its line alive: it is the one of that name.
    fn look(&self, grant: &Arc<Grant>) {
        if let Some(local) = self.find(grant.claim.name.as_str()) {
            local.look(grant);
        }
    }
}
