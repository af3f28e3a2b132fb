//! Messages of the servers to the sessions of one process: one subscription for all of them.

use percent_encoding::percent_decode_str;

use super::super::keys::{claim_id, session_id};
use super::answer::held;
use crate::claim::{ById, ClaimId, SessionId};
use crate::engine::{Ended, Event, Inbox};
use crate::fence::Fence;
use crate::sync::Shared;

#[derive(Debug, Default)]
pub(super) struct Mailbox {
    sessions: Shared<ById<SessionId, Inbox>>,
}

impl Mailbox {
    pub(super) fn add(&self, id: SessionId, inbox: Inbox) {
        let _ = self.sessions.lock().insert(id, inbox);
    }

    pub(super) fn remove(&self, id: SessionId) {
        let _ = self.sessions.lock().remove(&id);
    }

    pub(super) fn is_open(&self, id: SessionId) -> bool {
        self.sessions.lock().contains_key(&id)
    }

    /// Tells every session that it may have missed something.
    pub(super) fn missed(&self) {
        let inboxes: Vec<_> = self.sessions.lock().values().cloned().collect();
        for inbox in inboxes {
            inbox.deliver(Event::Unsure);
        }
    }

    /// Tells the content of a message. One in another format is left out: the next heartbeat tells the same.
    pub(super) fn heard(&self, message: &[u8]) {
        let Ok(message) = std::str::from_utf8(message) else {
            return;
        };
        for line in message.lines() {
            let Some((session, event)) = read(line) else {
                tracing::debug!("a message that no script of this version sends is ignored");
                continue;
            };
            let inbox = self.sessions.lock().get(&session).cloned();
            if let Some(inbox) = inbox {
                inbox.deliver(event);
            }
        }
    }
}

/// One line: what, claim, session, and whatever belongs to it.
fn read(line: &str) -> Option<(SessionId, Event)> {
    let mut words = line.split(' ');
    let what = words.next()?;
    let claim = claim_id(words.next()?)?;
    let session = session_id(words.next()?)?;
    Some((session, event(what, claim, words)?))
}

fn event<'a>(
    what: &str,
    claim: ClaimId,
    mut words: impl Iterator<Item = &'a str>,
) -> Option<Event> {
    Some(match what {
        "G" => {
            let fence = Fence::new(words.next()?.parse().ok()?);
            Event::Granted(claim, held(fence, words.next()? == "1"))
        }
        "W" => Event::Wanted(claim),
        "X" => Event::Ended(claim, Ended::Expired),
        "E" => {
            let mut text = || {
                percent_decode_str(words.next()?)
                    .decode_utf8()
                    .ok()
                    .map(String::from)
            };
            let (by, why) = (text()?, text().unwrap_or_default());
            Event::Ended(claim, Ended::Evicted { by, why })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::words::eviction;
    use super::*;

    #[test]
    fn lines_are_read() {
        let at = format!("{:032x} pbox.{:032x}", 7, 9);
        let claim = ClaimId::from_u128(7);
        let said = |line: String| read(&line);
        let told = |event| Some((SessionId::from_u128(9), event));
        let granted = Event::Granted(claim, held(Fence::new(12), true));
        assert_eq!(said(format!("G {at} 12 1")), told(granted));
        assert_eq!(said(format!("W {at}")), told(Event::Wanted(claim)));
        let (by, why) = ("a b".to_owned(), "be\ncause ü".to_owned());
        let text = eviction(&by, &why);
        let evicted = Event::Ended(claim, Ended::Evicted { by, why });
        assert_eq!(said(format!("E {at} {text}")), told(evicted));
        for odd in ["", "G", "Q 1 2", "G x y 1 1"] {
            assert_eq!(read(odd), None);
        }
    }
}
