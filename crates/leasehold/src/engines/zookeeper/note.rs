//! What our nodes say in their data: for people and for `inspect`. Nothing but the capacity is decided by it.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::Identity;
use crate::sync::Shared;

/// The first word of every note, with the version of its form.
const MARK: &str = "leasehold/1";

/// The data of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) weight: u32,
    pub(super) capacity: u32,
    /// How long the server keeps it without a word of its session.
    pub(super) lease: Duration,
    /// The number the fences come from, where it is not the node's own: a reader that was a writer.
    pub(super) czxid: i64,
    pub(super) who: Arc<Identity>,
}

impl Note {
    pub(super) fn write(&self) -> Vec<u8> {
        let Identity {
            host, pid, command, ..
        } = &*self.who;
        let lease = self.lease.as_millis();
        let (weight, capacity, czxid) = (self.weight, self.capacity, self.czxid);
        format!("{MARK} {weight} {capacity} {lease} {czxid} {pid} {host} {command}").into_bytes()
    }

    /// None for data of others.
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        let mut words = text.splitn(8, ' ');
        if words.next()? != MARK {
            return None;
        }
        let (weight, capacity) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let lease = Duration::from_millis(words.next()?.parse().ok()?);
        let czxid = words.next()?.parse().ok()?;
        let (pid, host) = (words.next()?.parse().ok()?, words.next()?);
        let who = Arc::new(Identity::new(host, pid, words.next().unwrap_or("")));
        Some(Self {
            weight,
            capacity,
            lease,
            czxid,
            who,
        })
    }
}

/// The bytes of the note that was written last: most claims of a session say the same.
#[derive(Debug, Default)]
pub(super) struct Written(Shared<Option<(Note, Arc<[u8]>)>>);

impl Written {
    pub(super) fn of(&self, note: &Note) -> Arc<[u8]> {
        let mut last = self.0.lock();
        match &*last {
            Some((same, bytes)) if same == note => bytes.clone(),
            _ => {
                let bytes: Arc<[u8]> = note.write().into();
                *last = Some((note.clone(), bytes.clone()));
                bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_as_it_was_written_and_never_from_others() {
        let note = Note {
            weight: 2,
            capacity: 3,
            lease: Duration::from_millis(1500),
            czxid: 0,
            who: Arc::new(Identity::new("host", 7, "a command with spaces")),
        };
        assert_eq!(Note::read(&note.write()), Some(note.clone()));
        let (written, other) = (
            Written::default(),
            Note {
                czxid: 9,
                ..note.clone()
            },
        );
        for note in [&note, &note, &other, &note] {
            assert_eq!(*written.of(note), note.write());
        }
        for other in [
            &b"127.0.0.1"[..],
            b"",
            b"__REVOKE__",
            b"leasehold/1 x",
            &[0xff],
        ] {
            assert_eq!(Note::read(other), None);
        }
    }
}
