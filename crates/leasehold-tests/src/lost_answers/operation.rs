//! The operations that are cut.

/// An operation of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Claim,
    Try,
    Heartbeat,
    Release,
    Downgrade,
    Evict,
    Inspect,
}

impl Operation {
    pub(super) const ALL: [Self; 7] = [
        Self::Claim,
        Self::Try,
        Self::Heartbeat,
        Self::Release,
        Self::Downgrade,
        Self::Evict,
        Self::Inspect,
    ];
}
