//! Random histories: operations on a line, and when.

use leasehold::engine::{ClaimId, Mode, SessionId};
use proptest::prelude::*;
use proptest::sample::Index;

/// How a history moves between two operations.
#[derive(Debug, Clone)]
pub(crate) enum Time {
    On(u64),
    /// Exactly to the end of some claim, or one before it.
    ToDeadline(Index, bool),
}

/// One step as it is drawn; its meaning depends on the line it meets.
#[derive(Debug, Clone)]
pub(crate) struct Draw {
    pub(crate) time: Time,
    /// How late this operation comes after it read the clock.
    pub(crate) late: u64,
    pub(crate) floor: Floor,
    pub(crate) what: Kind,
}

#[derive(Debug, Clone)]
pub(crate) enum Floor {
    Keep,
    Forward(u64),
    Back(u64),
    /// So high that only a few blocks are left, or none.
    Top(u64),
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Claim {
        who: u8,
        mode: u8,
        lease: u64,
        waits: bool,
    },
    Heartbeat(u8),
    Release(u8, u32),
    Sweep,
    SweepDead(u8),
    EvictAll,
    /// A fence of some holder's block.
    EvictOne(Index, u64),
    /// Written down and read back; an idle line only by its last fence.
    Restore,
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) kind: usize,
    pub(crate) start: u64,
    pub(crate) draws: Vec<Draw>,
}

/// The modes of one line, the usual ones first; the last two do not belong.
pub(crate) const KINDS: [[Mode; 5]; 4] = {
    const fn of(count: u32, of: u32) -> Mode {
        Mode::Permits { count, of }
    }
    use Mode::{Mutex, Read, Write};
    [
        [Mutex, Mutex, Mutex, Read, of(0, 1)],
        [Read, Write, Read, Mutex, of(0, u32::MAX)],
        [of(1, 2), of(2, 2), of(1, 2), of(1, 3), of(3, 2)],
        [of(1, 4), of(3, 4), of(2, 4), of(4, 5), of(0, 4)],
    ]
};
pub(crate) const CLAIMS: u8 = 7;
/// The steps of a history, on average.
const STEPS: usize = 100;

pub(crate) fn claim_id(who: u8) -> ClaimId {
    ClaimId::from_u128(u128::from(who) << 104)
}

/// Three sessions with several claims each.
pub(crate) fn session_of(who: u8) -> SessionId {
    SessionId::from_u128(u128::from(who % 3) << 104)
}

fn draw(edge: bool) -> impl Strategy<Value = Draw> {
    let time = prop_oneof![
        12 => Just(Time::On(0)),
        6 => (1..4_u64).prop_map(Time::On),
        1 => (any::<Index>(), any::<bool>()).prop_map(|(i, exact)| Time::ToDeadline(i, exact)),
    ];
    let floor = prop_oneof![
        6 => Just(Floor::Keep),
        2 => (1..700_u64).prop_map(Floor::Forward),
        1 => (1..700_u64).prop_map(Floor::Back),
        u32::from(edge) => (0..2000_u64).prop_map(Floor::Top),
    ];
    let lease = prop_oneof![1 => 0..4_u64, 5 => 10..80_u64];
    let used = prop_oneof![0..4_u32, 250..260_u32, Just(u32::MAX)];
    let mode = prop_oneof![20 => 0..3_u8, 1 => 3..5_u8];
    let what = prop_oneof![
        12 => (0..CLAIMS, mode, lease, prop::bool::weighted(0.8))
            .prop_map(|(who, mode, lease, waits)| Kind::Claim { who, mode, lease, waits }),
        6 => (0..CLAIMS).prop_map(Kind::Heartbeat),
        5 => (0..CLAIMS, used).prop_map(|(who, used)| Kind::Release(who, used)),
        1 => Just(Kind::Sweep),
        1 => (0..3_u8).prop_map(Kind::SweepDead),
        1 => Just(Kind::EvictAll),
        1 => (any::<Index>(), 0..300_u64).prop_map(|(i, off)| Kind::EvictOne(i, off)),
        1 => Just(Kind::Restore),
    ];
    let late = prop_oneof![9 => Just(0_u64), 1 => 1..4_u64];
    (time, late, floor, what).prop_map(|(time, late, floor, what)| Draw {
        time,
        late,
        floor,
        what,
    })
}

pub(crate) fn history() -> impl Strategy<Value = History> {
    let edge = prop::bool::weighted(0.1);
    (0..KINDS.len(), edge, 0..3000_u64).prop_flat_map(|(kind, edge, low)| {
        let start = if edge { i64::MAX as u64 - low } else { low };
        prop::collection::vec(draw(edge), 1..2 * STEPS).prop_map(move |draws| History {
            kind,
            start,
            draws,
        })
    })
}
