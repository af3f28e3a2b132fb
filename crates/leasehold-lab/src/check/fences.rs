//! Fences against calls and answers.

use super::verdict::{Promise, Verdict};
use crate::history::Hold;

/// The outermost holds of one name, in order of fences. Locks without fences promise nothing here.
pub(super) fn judge(holds: &[Hold], verdict: &mut Verdict) {
    let mut latest: Option<&Hold> = None;
    let mut last: Option<&Hold> = None;
    for hold in holds.iter().filter(|hold| hold.fence > 0) {
        if let Some(last) = last.filter(|last| last.fence == hold.fence) {
            verdict.broke(Promise::FenceOrder, hold.name, hold.got, |verdict| {
                format!("{} has the fence of {}", verdict.say(hold), verdict.say(last))
            });
        } else if let Some(later) = latest.filter(|latest| latest.call > hold.got) {
            verdict.broke(Promise::FenceOrder, hold.name, hold.got, |verdict| {
                let (hold, later) = (verdict.say(hold), verdict.say(later));
                format!("{hold} was answered before {later} asked, and has the larger fence")
            });
        }
        last = Some(hold);
        if latest.is_none_or(|latest| hold.call > latest.call) {
            latest = Some(hold);
        }
    }
}
