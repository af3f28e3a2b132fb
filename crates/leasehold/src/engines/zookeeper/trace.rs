//! What an eviction leaves behind: who, why, and whom.

use crate::engine::Ended;

/// The last eviction of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trace {
    /// The nodes that were taken away.
    pub(super) czxids: Vec<i64>,
    pub(super) by: String,
    pub(super) why: String,
}

impl Trace {
    pub(super) fn write(&self) -> Vec<u8> {
        let czxids: Vec<_> = self.czxids.iter().map(i64::to_string).collect();
        let by = self.by.replace('\n', " ");
        format!("{}\n{by}\n{}", czxids.join(" "), self.why).into_bytes()
    }

    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(data).ok()?.splitn(3, '\n');
        let czxids = lines.next()?.split(' ').map(str::parse);
        Some(Self {
            czxids: czxids.collect::<Result<_, _>>().ok()?,
            by: lines.next()?.to_owned(),
            why: lines.next()?.to_owned(),
        })
    }

    /// How the claim with this number ended, if it was this eviction.
    pub(super) fn of(self, czxid: i64) -> Option<Ended> {
        let Self { czxids, by, why } = self;
        czxids
            .contains(&czxid)
            .then_some(Ended::Evicted { by, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speaks_of_those_it_took_and_of_nobody_else() {
        let trace = Trace {
            czxids: vec![7, 9],
            by: "host:1".to_owned(),
            why: "two\nlines".to_owned(),
        };
        let read = Trace::read(&trace.write()).unwrap();
        assert_eq!(read, trace);
        assert!(
            matches!(read.clone().of(9), Some(Ended::Evicted { why, .. }) if why == "two\nlines")
        );
        assert_eq!(read.of(8), None);
        assert_eq!(Trace::read(b"127.0.0.1"), None);
    }
}
