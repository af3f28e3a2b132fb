//! Fences of the server's numbers, and the numbers of fences.

use super::Fail;
use crate::engine::{FENCE_BLOCK, Params};
use crate::error::ErrorKind;
use crate::fence::Fence;

/// What the fences of a deployment are counted from: `fence_floor` of its URL, 0 unless set.
///
/// Only a fence contains the floor. Nodes and traces of evictions contain the server's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::engines) struct FenceFloor(i64);

impl FenceFloor {
    pub(in crate::engines) fn of(params: &mut Params) -> Result<Self, String> {
        let Some(given) = params.take("fence_floor") else {
            return Ok(Self::default());
        };
        let digits = given.bytes().all(|byte| byte.is_ascii_digit());
        match given.parse() {
            Ok(floor) if digits => Ok(Self(floor)),
            _ => Err(format!(
                "fence_floor={given}: write the largest fence that the resource has seen, a whole number below 2^63"
            )),
        }
    }

    /// The first fence of the block that belongs to a node with this number.
    pub(super) fn fence(self, number: i64) -> Result<Fence, Fail> {
        let Self(floor) = self;
        let past = Some(number).filter(|number| *number >= 0);
        let past = past.and_then(|number| number.checked_mul(i64::from(FENCE_BLOCK)));
        let first = past.and_then(|past| past.checked_add(floor));
        let last = first.and_then(|first| first.checked_add(i64::from(FENCE_BLOCK) - 1));
        match (last, first.map(u64::try_from)) {
            (Some(_), Some(Ok(first))) => Ok(Fence::new(first)),
            _ if floor == 0 => Err(Fail::Refused(
                ErrorKind::Unavailable,
                format!("no fence is left below 2^63: the server counts {number} changes"),
            )),
            _ => Err(Fail::Refused(
                ErrorKind::Config,
                format!(
                    "no fence is left below 2^63: fence_floor is {floor}, and the server counts {number} changes; the \
                     floor has to be the largest fence that the resource has seen"
                ),
            )),
        }
    }

    /// The number of the node whose block a fence is in; none for a fence below every block.
    pub(super) fn number(self, fence: Fence) -> Option<i64> {
        let past = i64::try_from(fence.get()).ok()?.checked_sub(self.0)?;
        (past >= 0).then(|| past / i64::from(FENCE_BLOCK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Url;

    const BLOCK: i64 = FENCE_BLOCK as i64;

    fn floor(query: &str) -> Result<FenceFloor, String> {
        let mut params = Url::parse(&format!("x:?{query}")).unwrap().params();
        let floor = FenceFloor::of(&mut params);
        params.finish().unwrap();
        floor
    }

    #[test]
    fn a_block_of_fences_ends_below_2_to_the_63() {
        let most = i64::MAX / BLOCK;
        // With the floor 255 the last block ends one beyond.
        for (floor, last) in [(0, most), (1, most - 1), (255, most - 1), (256, most - 1)] {
            let floor = FenceFloor(floor);
            let first = floor.fence(last).unwrap();
            assert!(i64::try_from(first.get() + u64::from(FENCE_BLOCK) - 1).is_ok());
            assert!(floor.fence(last + 1).is_err(), "{floor:?}");
            assert!(floor.fence(-1).is_err(), "{floor:?}");
            assert!(floor.fence(i64::MAX).is_err(), "{floor:?}");
        }
        let highest = FenceFloor(i64::MAX - 2 * BLOCK + 1);
        let first = highest.fence(1).unwrap().get();
        assert_eq!(first + u64::from(FENCE_BLOCK) - 1, i64::MAX as u64);
        assert!(FenceFloor(i64::MAX - 2 * BLOCK + 2).fence(1).is_err());
    }

    #[test]
    fn a_floor_that_leaves_no_fence_is_named() {
        let Err(Fail::Refused(kind, what)) = FenceFloor(i64::MAX).fence(7) else {
            panic!("a fence beyond 2^63");
        };
        assert_eq!(kind, ErrorKind::Config);
        assert!(
            what.contains("fence_floor is 9223372036854775807"),
            "{what}"
        );
        assert!(what.contains("counts 7 changes"), "{what}");
        let Err(Fail::Refused(kind, what)) = FenceFloor(0).fence(i64::MAX) else {
            panic!("a fence beyond 2^63");
        };
        assert_eq!(kind, ErrorKind::Unavailable);
        assert!(!what.contains("fence_floor"), "{what}");
    }

    #[test]
    fn every_fence_of_a_block_has_the_number_of_its_node() {
        for floor in [0, 1, 255, 256, 1_794_985_059_371_655] {
            let floor = FenceFloor(floor);
            for number in [0, 1, 2, 1_000_000] {
                let first = floor.fence(number).unwrap().get();
                for turn in [0, 1, 255] {
                    let fence = Fence::new(first + turn);
                    assert_eq!(floor.number(fence), Some(number), "{floor:?} {fence:?}");
                }
                let next = floor.number(Fence::new(first + u64::from(FENCE_BLOCK)));
                assert_eq!(next, Some(number + 1), "{floor:?}");
            }
        }
    }

    #[test]
    fn a_fence_below_the_floor_is_of_no_node() {
        let floor = FenceFloor(1000);
        for fence in [0, 1, 999, i64::MAX as u64 + 1, u64::MAX] {
            assert_eq!(floor.number(Fence::new(fence)), None, "{fence}");
        }
        assert_eq!(floor.number(Fence::new(1000)), Some(0));
    }

    #[test]
    fn a_floor_is_a_whole_number_below_2_to_the_63() {
        assert_eq!(floor(""), Ok(FenceFloor(0)));
        assert_eq!(floor("fence_floor=0"), Ok(FenceFloor(0)));
        let most = floor("fence_floor=9223372036854775807");
        assert_eq!(most, Ok(FenceFloor(i64::MAX)));
        for bad in ["", "-1", "+1", "1.5", "1e9", "x", "9223372036854775808"] {
            let refused = floor(&format!("fence_floor={bad}")).unwrap_err();
            assert!(refused.contains("below 2^63"), "{bad:?}: {refused}");
            assert!(
                refused.contains(&format!("fence_floor={bad}:")),
                "{refused}"
            );
        }
    }
}
