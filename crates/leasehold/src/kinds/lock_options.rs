//! The terms of a lock, apart from its name.

use super::terms;
use crate::turns::Terms;

/// The terms of a lock: as defaults of a client ([`ConnectOptions::locks`](crate::ConnectOptions::locks)), or for some of its
/// locks (`options` of every kind). What is not set is as in [`ConnectOptions`](crate::ConnectOptions) without options.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// use leasehold::{ConnectOptions, LockOptions};
/// use std::time::Duration;
///
/// let ours = LockOptions::new().lease(Duration::from_secs(5)).linger(Duration::from_millis(50));
/// let client = ConnectOptions::new().locks(ours).connect("memory:").await?;
///
/// let nightly = LockOptions::new().min_hold(Duration::from_secs(60));
/// let guard = client.mutex("report").options(&nightly).lock().await?;
/// assert_eq!(guard.lease(), Duration::from_secs(10));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "options do nothing until a client or a lock has them"]
pub struct LockOptions(Of);

#[derive(Debug, Clone, Default)]
struct Of {
    terms: Terms,
}

impl LockOptions {
    /// A lease of 10 s that is renewed, no minimum, no lingering, turns within [`TurnBound::default`](crate::TurnBound).
    pub fn new() -> Self {
        Self::default()
    }

    terms!(setters);

    pub(crate) fn terms(&self) -> &Terms {
        &self.0.terms
    }

    pub(super) fn apply(&self, terms: &mut Terms) {
        let reentrant = std::mem::take(&mut terms.reentrant);
        *terms = Terms {
            reentrant,
            ..self.0.terms.clone()
        };
    }
}
