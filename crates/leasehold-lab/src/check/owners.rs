//! Re-entrancy: what one owner holds at a time is one hold.

use super::verdict::{Promise, Verdict};
use crate::history::Hold;

/// The holds of one name with those that re-entered made part of the outermost. In order of fences, as they came.
pub(super) fn outermost(holds: Vec<Hold>, verdict: &mut Verdict) -> Vec<Hold> {
    if holds.iter().all(|hold| hold.owner == 0) {
        return holds;
    }
    let (mut owned, mut all): (Vec<Hold>, Vec<Hold>) =
        holds.into_iter().partition(|hold| hold.owner != 0);
    owned.sort_by_key(|hold| (hold.owner, hold.got, hold.fence));
    let mut outer: Option<Hold> = None;
    for hold in owned {
        match &mut outer {
            Some(outer) if outer.owner == hold.owner && is_inside(&hold, outer) => {
                if outer.fence != hold.fence {
                    let outer = *outer;
                    verdict.broke(Promise::Reentrancy, hold.name, hold.got, |verdict| {
                        format!(
                            "{} re-entered {} under another fence",
                            verdict.say(&hold),
                            verdict.say(&outer)
                        )
                    });
                }
                outer.end = outer.end.max(hold.end);
                outer.free = outer.free.max(hold.free);
            }
            _ => all.extend(outer.replace(hold)),
        }
    }
    all.extend(outer);
    all.sort_by_key(|hold| (hold.fence, hold.got));
    all
}

/// Whether it was answered while the outer one was held. At one instant the fence decides: the same one means that it
/// re-entered before the end.
fn is_inside(hold: &Hold, outer: &Hold) -> bool {
    hold.got < outer.end || (hold.got == outer.end && hold.fence == outer.fence)
}
