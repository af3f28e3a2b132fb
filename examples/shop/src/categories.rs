//! The category tree: every page shows it, one instance of the fleet loads it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold::LoadError;
use serde::{Deserialize, Serialize};

use crate::answer::{Outcome, Problem};
use crate::app::App;

/// One category.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Category {
    /// Its number.
    pub id: u64,
    /// The category above it.
    pub parent: Option<u64>,
    /// Its name.
    pub name: String,
}

/// The tree below a root, or none if there is no such root. Both are kept for the fleet.
///
/// # Errors
/// Those of the lock, of its store, and of the database.
pub async fn tree(app: &App, root: u64, ttl: Duration) -> Outcome<Option<Arc<Vec<Category>>>> {
    // Values of another ttl are other values.
    let name = format!("categories:{root}:{}", ttl.as_millis());
    let cached = app.locks.cached(name).ttl(ttl).ttl_of_nothing(ttl);
    // No instance tells what it holds for long without a look at the store.
    let cached = cached.local(ttl / 10);
    cached
        .get_or_load(async || load(app, root).await)
        .await
        .map_err(|failed| match failed {
            LoadError::Lock(error) => error.into(),
            other => Problem::from_load(&other),
        })
}

/// Reads the tree from the database, and counts that it did.
///
/// # Errors
/// Those of the database.
pub async fn load(app: &App, root: u64) -> Outcome<Option<Vec<Category>>> {
    let _ = app.loads.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(app.settings.think).await;
    app.rows.tree(root).await
}
