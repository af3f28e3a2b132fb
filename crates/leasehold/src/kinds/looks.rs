//! Looks at a store, again and again.

use std::time::Duration;

use crate::error::Result;

/// Pauses between looks, and how many failures in a row are borne.
#[derive(Debug)]
pub(super) struct Looks {
    pause: Duration,
    failed: u32,
}

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(250);
/// With the pauses between them some seconds.
const BORNE: u32 = 20;

impl Looks {
    pub(super) const fn new() -> Self {
        let (pause, failed) = (FIRST, 0);
        Self { pause, failed }
    }

    /// Waits before the next look, and answers with how long that was. At different moments in different processes.
    pub(super) async fn pause(&mut self) -> Duration {
        let pause = self.pause.mul_f64(rand::random_range(0.5..1.0));
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(LONGEST);
        pause
    }

    /// What was seen; none if the look failed and another may succeed.
    pub(super) fn bear<T>(&mut self, seen: Result<T>) -> Result<Option<T>> {
        match seen {
            Err(error) if error.is_transient() && self.failed < BORNE => {
                tracing::debug!(%error, "looking again");
                self.failed += 1;
                Ok(None)
            }
            seen => {
                self.failed = 0;
                seen.map(Some)
            }
        }
    }
}
