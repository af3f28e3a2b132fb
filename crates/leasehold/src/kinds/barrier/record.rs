//! What the store has of a barrier.

use std::fmt;

use crate::fence::Fence;

/// What the store has: `COUNT OPEN WENT: FENCE FENCE …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) count: u32,
    /// The generation that members join now.
    pub(super) open: u64,
    /// The latest generation that was complete. A member that does not know yet holds its permit, so no later one can be.
    pub(super) went: u64,
    /// The fences of the permits of those who have joined.
    pub(super) fences: Vec<u64>,
}

impl Record {
    /// Generations grow also where a store has lost the record, because fences do. The generation 0 is none.
    pub(super) fn first(count: u32, fence: Fence) -> Self {
        Self {
            count,
            open: fence.get().max(1),
            went: 0,
            fences: Vec::new(),
        }
    }

    pub(super) fn next(&mut self, fence: Fence) {
        self.open = fence.get().max(self.open.saturating_add(1));
        self.fences.clear();
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (head, fences) = text.split_once(':')?;
        let mut head = head.split(' ');
        let record = Self {
            count: head.next()?.parse().ok()?,
            open: head.next()?.parse().ok()?,
            went: head.next()?.parse().ok()?,
            fences: fences
                .split_whitespace()
                .map(|fence| fence.parse().ok())
                .collect::<Option<_>>()?,
        };
        (head.next().is_none() && record.went < record.open).then_some(record)
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}:", self.count, self.open, self.went)?;
        self.fences
            .iter()
            .try_for_each(|fence| write!(f, " {fence}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut record = Record::first(3, Fence::new(0));
        assert_eq!(record.to_string(), "3 1 0:");
        record.fences = vec![7, u64::MAX];
        assert_eq!(Record::parse(&record.to_string()), Some(record));
        for other in ["", "3 1 0", "3 1 1:", "3 1:", "3 1 0 0:", "3 1 0: x", "7"] {
            assert_eq!(Record::parse(other), None, "{other:?}");
        }
    }
}
