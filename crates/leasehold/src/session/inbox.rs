//! Where an engine tells what happened to a session's claims.

use std::fmt;
use std::sync::Arc;

use crate::engine::Event;

/// Takes a session's events. Delivering never blocks and never fails.
///
/// ```
/// use leasehold::engine::{Event, Inbox};
/// let (tell, told) = std::sync::mpsc::channel();
/// let inbox = Inbox::new(move |event| tell.send(event).unwrap());
/// inbox.deliver(Event::Unsure);
/// assert_eq!(told.recv(), Ok(Event::Unsure));
/// ```
#[derive(Clone)]
pub struct Inbox(Arc<dyn Fn(Event) + Send + Sync>);

impl Inbox {
    /// An inbox that calls a function, for tests of engines.
    pub fn new(take: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Tells one event.
    pub fn deliver(&self, event: Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Inbox")
    }
}
