//! Messages of nodes, and the sessions that they go to.

use std::sync::Weak;

use percent_encoding::percent_decode_str;

use super::super::keys::{claim_id, session_id};
use super::session::RedlockSession;
use crate::claim::{ById, ClaimId, SessionId};
use crate::engine::Ended;
use crate::sync::Shared;

/// The channel of this process, and the sessions behind it.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) address: String,
    sessions: Shared<ById<SessionId, Weak<RedlockSession>>>,
}

/// A message of one node about one claim. None is believed without a majority.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// It may be worth trying now.
    Free,
    /// Another claim asked for the name that this one holds.
    Wanted,
    Ended(Ended),
}

impl Post {
    pub(super) fn new() -> Self {
        let address = format!("p{:016x}", rand::random::<u64>());
        Self {
            address,
            sessions: Shared::default(),
        }
    }

    pub(super) fn add(&self, id: SessionId, session: Weak<RedlockSession>) {
        let _ = self.sessions.lock().insert(id, session);
    }

    pub(super) fn remove(&self, id: SessionId) {
        let _ = self.sessions.lock().remove(&id);
    }

    pub(super) fn is_open(&self, id: SessionId) -> bool {
        self.sessions.lock().contains_key(&id)
    }

    pub(super) fn heard(&self, node: usize, message: &[u8]) {
        let Some((session, claim, news)) = std::str::from_utf8(message).ok().and_then(read) else {
            tracing::debug!("a message that no script of this version sends is ignored");
            return;
        };
        let session = self.sessions.lock().get(&session).and_then(Weak::upgrade);
        if let Some(session) = session {
            session.heard(node, claim, news);
        }
    }
}

/// What, claim, session, and whatever belongs to it.
fn read(message: &str) -> Option<(SessionId, ClaimId, News)> {
    let mut words = message.split(' ');
    let what = words.next()?;
    let claim = claim_id(words.next()?)?;
    let session = session_id(words.next()?)?;
    let mut text = || {
        percent_decode_str(words.next()?)
            .decode_utf8()
            .ok()
            .map(String::from)
    };
    let news = match what {
        "F" => News::Free,
        "W" => News::Wanted,
        "E" => {
            let by = text()?;
            News::Ended(Ended::Evicted {
                by,
                why: text().unwrap_or_default(),
            })
        }
        _ => return None,
    };
    Some((session, claim, news))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read() {
        let at = format!("{:032x} pbox.{:032x}", 7, 9);
        let said = |line: String| {
            read(&line).map(|(session, claim, news)| {
                assert_eq!(
                    (session, claim),
                    (SessionId::from_u128(9), ClaimId::from_u128(7))
                );
                news
            })
        };
        assert_eq!(said(format!("F {at}")), Some(News::Free));
        assert_eq!(said(format!("W {at}")), Some(News::Wanted));
        let (by, why) = ("a".to_owned(), "b c".to_owned());
        assert_eq!(
            said(format!("E {at} a b%20c")),
            Some(News::Ended(Ended::Evicted { by, why }))
        );
        for odd in ["", "F", "Q 1 2", "F x y"] {
            assert_eq!(read(odd), None);
        }
    }
}
