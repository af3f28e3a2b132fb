//! Another program that spoils the keys of one name, again and again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, park_timeout, spawn};
use std::time::Duration;

/// Spoils until it is dropped; then it tidies up.
pub struct Vandal {
    over: Arc<AtomicBool>,
    works: Option<JoinHandle<()>>,
    tidy: Box<dyn FnMut() + Send>,
}

impl Vandal {
    /// Spoils once before this returns.
    pub fn new(
        mut spoil: impl FnMut() + Send + 'static,
        tidy: impl FnMut() + Send + 'static,
    ) -> Self {
        spoil();
        let over = Arc::<AtomicBool>::default();
        let ends = over.clone();
        let works = spawn(move || {
            while !ends.load(Ordering::Acquire) {
                spoil();
                park_timeout(Duration::from_millis(20));
            }
        });
        Self {
            over,
            works: Some(works),
            tidy: Box::new(tidy),
        }
    }
}

impl fmt::Debug for Vandal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Vandal")
    }
}

impl Drop for Vandal {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let ended = self.works.take().map(JoinHandle::join);
        assert!(
            matches!(ended, Some(Ok(()))),
            "it has not spoiled all along"
        );
        (self.tidy)();
    }
}
