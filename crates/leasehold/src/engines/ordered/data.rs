//! Stored text: the data of a claim's node, and the trace of an eviction.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Ended, Identity};

/// The data that asks a holder to give its lock up; Curator's.
pub(in crate::engines) const REVOKE: &[u8] = b"__REVOKE__";

/// The first word of our data, with the version of its form.
const MARK: &str = "leasehold/1";

/// The data of a claim's node. Only the capacity decides anything; the rest is shown by `inspect`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines) struct Note {
    pub(in crate::engines) weight: u32,
    pub(in crate::engines) capacity: u32,
    /// How long the server keeps the node after its session's last word.
    pub(in crate::engines) lease: Duration,
    /// The number that the fences come from, where it is not the node's own: of a reader that was a writer.
    pub(in crate::engines) number: i64,
    pub(in crate::engines) who: Arc<Identity>,
}

impl Note {
    pub(in crate::engines) fn write(&self) -> Vec<u8> {
        let Identity {
            host, pid, command, ..
        } = &*self.who;
        let lease = self.lease.as_millis();
        let (weight, capacity, number) = (self.weight, self.capacity, self.number);
        format!("{MARK} {weight} {capacity} {lease} {number} {pid} {host} {command}").into_bytes()
    }

    /// None for data of other programs.
    pub(in crate::engines) fn read(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        let mut words = text.splitn(8, ' ');
        if words.next()? != MARK {
            return None;
        }
        let (weight, capacity) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let lease = Duration::from_millis(words.next()?.parse().ok()?);
        let number = words.next()?.parse().ok()?;
        let (pid, host) = (words.next()?.parse().ok()?, words.next()?);
        let who = Arc::new(Identity::new(host, pid, words.next().unwrap_or("")));
        Some(Self {
            weight,
            capacity,
            lease,
            number,
            who,
        })
    }
}

/// The last eviction from one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engines) struct Trace {
    /// The numbers of the claims that were evicted.
    pub(in crate::engines) numbers: Vec<i64>,
    pub(in crate::engines) by: String,
    pub(in crate::engines) why: String,
}

impl Trace {
    pub(in crate::engines) fn write(&self) -> Vec<u8> {
        let numbers: Vec<_> = self.numbers.iter().map(i64::to_string).collect();
        let by = self.by.replace('\n', " ");
        format!("{}\n{by}\n{}", numbers.join(" "), self.why).into_bytes()
    }

    pub(in crate::engines) fn read(data: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(data).ok()?.splitn(3, '\n');
        let numbers = lines.next()?.split(' ').map(str::parse);
        Some(Self {
            numbers: numbers.collect::<Result<_, _>>().ok()?,
            by: lines.next()?.to_owned(),
            why: lines.next()?.to_owned(),
        })
    }

    /// How the claim with this number ended, if this eviction ended it.
    pub(in crate::engines) fn of(self, number: i64) -> Option<Ended> {
        let Self { numbers, by, why } = self;
        let evicted = numbers.contains(&number);
        evicted.then_some(Ended::Evicted { by, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_never_from_other_data() {
        let note = Note {
            weight: 2,
            capacity: 3,
            lease: Duration::from_millis(1500),
            number: 9,
            who: Arc::new(Identity::new("host", 7, "a command with spaces")),
        };
        assert_eq!(Note::read(&note.write()), Some(note));
        for other in [&b"127.0.0.1"[..], b"", REVOKE, b"leasehold/1 x", &[0xff]] {
            assert_eq!(Note::read(other), None);
        }
    }

    #[test]
    fn a_trace_speaks_of_the_claims_it_names() {
        let trace = Trace {
            numbers: vec![7, 9],
            by: "host:1".to_owned(),
            why: "two\nlines".to_owned(),
        };
        let read = Trace::read(&trace.write()).unwrap();
        assert_eq!(read, trace);
        let ended = read.clone().of(9);
        assert!(matches!(ended, Some(Ended::Evicted { why, .. }) if why == "two\nlines"));
        assert_eq!(read.of(8), None);
        assert_eq!(Trace::read(b"127.0.0.1"), None);
    }
}
